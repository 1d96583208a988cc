// Measures training steps of the transformer of examples/10_imdb_transformer in one layout: each
// replica is divided among --parts ranks, and all reviews consist of random words.
//
//     unisono run -n 2 imdb_layout --chunks 4
//     unisono run -n 4 imdb_layout --parts 2 --chunks 8 --schedule zb_h1 --json figures.json
//     unisono run -n 2 imdb_layout --chunks 4 --layer-times layers.csv --svg step.svg
//
// grid.py, in this folder, compares all layouts.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <torch/utils.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "../../../examples/command_line.h"
#include "options.h"
#include "step_report.h"
#include "transformer.h"

namespace {

using unisono::nn::CheckpointMode;
using unisono::parallel::Mesh;
using unisono::parallel::Pipeline;

constexpr int kWarmUp = 2;
constexpr double kBytesPerMiB = 1 << 20;

struct LayoutOptions : imdb::Options {
  int parts = 2;
  std::string schedule = "1f1b";
  std::string checkpoint = "never";
  int steps = 5;
  std::string json;         // If empty, the program prints a text for people.
  std::string layer_times;  // If empty, the layers are not measured.
  std::string svg;          // If empty, no picture is written.
};

const std::map<std::string, CheckpointMode>& checkpoint_modes() {
  static const std::map<std::string, CheckpointMode> modes{
      {"never", CheckpointMode::kNever},
      {"always", CheckpointMode::kAlways},
      {"except_last", CheckpointMode::kExceptLast}};
  return modes;
}

void add_options(CLI::App& app, LayoutOptions& options) {
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  imdb::add_model_options(app, options);
  app.add_option("--parts", options.parts, "Ranks that a replica of the model is divided among")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--schedule", options.schedule, "A schedule of `unisono plan pipeline`")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint, "Chunks that backward computes again")
      ->check(CLI::IsMember(checkpoint_modes()))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps to measure")
      ->check(positive)
      ->capture_default_str();
  app.add_option(
      "--json", options.json, "Write the figures into this file and print no table of gains");
  app.add_option("--layer-times",
                 options.layer_times,
                 "Measure the layers, write their costs into this file, and compare a step with "
                 "the plan that follows from them");
  app.add_option("--svg", options.svg, "Write a picture of the last step into this file");
}

void check(const LayoutOptions& options, int n_ranks) {
  const auto refuse = [](const std::string& problem) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument, problem);
  };
  imdb::check(options);
  (void)unisono::pipeline::find_schedule(options.schedule);
  if (options.batch_size % options.chunks != 0) {
    refuse("--batch-size " + std::to_string(options.batch_size) + " can't be divided into " +
           std::to_string(options.chunks) + " --chunks of equal size");
  }
  if (!options.layer_times.empty() && options.checkpoint != "never") {
    refuse("--layer-times is for steps that compute nothing again, and --checkpoint is " +
           options.checkpoint);
  }
  if (n_ranks % options.parts != 0) {
    refuse(std::to_string(n_ranks) + " ranks can't be divided into replicas of --parts " +
           std::to_string(options.parts));
  }
}

// Every replica gets its own batch.
unisono::BatchTensors random_batch(const LayoutOptions& options, int replica) {
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + replica));
  const auto length = static_cast<std::int64_t>(options.max_length);
  const auto n_tokens = static_cast<std::int64_t>(options.ntokens);
  return {.samples = torch::randint(2, n_tokens, {options.batch_size, length}, torch::kLong),
          .labels = torch::randint(2, {options.batch_size}, torch::kLong)};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) {
    throw unisono::Error(unisono::ErrorCode::kSystem, "can't write " + path);
  }
}

// Returns one line of JSON: reviews of all replicas per second, the median over the steps of the
// slowest rank's time, the bubble of the last step, and the largest peak of a rank's activations.
std::string measure_steps(const LayoutOptions& options,
                          const Mesh& mesh,
                          Pipeline& model,
                          const unisono::BatchTensors& batch) {
  unisono::optim::AdamW optimizer(model.parameters());
  std::vector<double> slowest_ms;
  double peak_mib = 0;
  for (int step = 0; step < kWarmUp + options.steps; ++step) {
    mesh.world()->barrier();
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    model.train_step(batch.samples, batch.labels, imdb::loss_of);
    optimizer.step();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (step >= kWarmUp) {
      slowest_ms.push_back(time.count());
      peak_mib = std::max(
          peak_mib, static_cast<double>(model.last_step().peak_activation_bytes) / kBytesPerMiB);
    }
  }
  mesh.world()->all_reduce(unisono::as_buffer(std::span(slowest_ms)), {.op = unisono::kMax});
  mesh.world()->all_reduce(unisono::as_buffer(std::span(&peak_mib, 1)), {.op = unisono::kMax});
  std::ranges::sort(slowest_ms);
  const double median_ms = slowest_ms[slowest_ms.size() / 2];
  const double bubble = unisono::pipeline::bubble(model.timeline());
  std::vector<char> line(300);
  std::snprintf(line.data(),
                line.size(),
                R"({"reviews_per_s": %.3f, "step_ms": %.3f, "bubble": %.4f, )"
                R"("peak_activation_mib": %.3f})"
                "\n",
                1e3 * options.batch_size * mesh.size("data") / median_ms,
                median_ms,
                bubble,
                peak_mib);
  return line.data();
}

void run(const LayoutOptions& options) {
  const auto world = unisono::init_process_group();
  check(options, world->world_size());
  const bool is_first = world->rank() == 0;
  const Mesh mesh(world, {{"data", world->world_size() / options.parts}, {"pipe", options.parts}});
  unisono::ProcessGroup& pipe = *mesh.group("pipe");
  const unisono::BatchTensors batch = random_batch(options, mesh.coordinate("data"));
  unisono::pipeline::LayerCosts costs;
  if (!options.layer_times.empty()) {
    costs = imdb::measure_layers(options, *world, batch);
    if (is_first) {
      write(options.layer_times, unisono::pipeline::to_csv(costs));
    }
  }
  Pipeline model(mesh.group("pipe"),
                 imdb::make_net(options, static_cast<std::int64_t>(options.ntokens)),
                 {.schedule = options.schedule,
                  .chunks = options.chunks,
                  .checkpoint = checkpoint_modes().at(options.checkpoint),
                  .data_group = mesh.group("data"),
                  .seed = static_cast<std::uint64_t>(options.seed),
                  .measures_memory = true});
  const std::string figures = measure_steps(options, mesh, model, batch);
  if (!options.svg.empty()) {
    const unisono::pipeline::Timeline step = model.timeline();
    if (is_first) {
      write(options.svg, unisono::pipeline::render_svg(step, "ms"));
    }
  }
  std::string text;
  if (!options.json.empty()) {
    if (is_first) {
      write(options.json, figures);
    }
  } else {
    text = imdb::describe_gain(options, batch, model, pipe);
  }
  if (!options.layer_times.empty()) {
    text += imdb::compare_with_plan(costs, batch, model, pipe);
  }
  if (is_first) {
    std::fputs(text.c_str(), stdout);
  }
  world->barrier();
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  LayoutOptions options;
  CLI::App app("Measures training steps of a transformer in one layout of replicas and parts");
  add_options(app, options);
  examples::parse_or_exit(app, argc, argv);
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "imdb_layout: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
