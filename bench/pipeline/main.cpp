// Measures the steps of a pipeline of linear layers on the ranks on which the program is started:
//
//     unisono run -n 2 pipeline_bench --stages 2 --chunks 8 --schedule 1f1b
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace {

constexpr double kBytesPerMiB = 1 << 20;
constexpr int kWarmUp = 3;

struct Options {
  int stages = 2;
  int width = 1024;
  int layers = 4;
  int batch = 256;
  int chunks = 4;
  std::string schedule = "1f1b";
  int steps = 20;
  std::string json;
};

torch::nn::Sequential make_net(const Options& options) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int layer = 0; layer < options.layers; ++layer) {
    net->push_back(torch::nn::Linear(options.width, options.width));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

int stages_per_rank(const Options& options, int n_ranks) {
  const int here = unisono::pipeline::find_schedule(options.schedule).stages_per_rank;
  const int wanted = here > 0 ? here : options.stages / n_ranks;
  if (options.stages != wanted * n_ranks) {
    throw std::invalid_argument("--schedule " + options.schedule + " on " +
                                std::to_string(n_ranks) + " ranks has " +
                                std::to_string(std::max(1, wanted) * n_ranks) + " --stages, not " +
                                std::to_string(options.stages));
  }
  return wanted;
}

void write(const Options& options, const std::string& line) {
  if (options.json.empty()) {
    std::fputs(line.c_str(), stdout);
    return;
  }
  std::ofstream file(options.json);
  if (!(file << line) || !file.flush()) {
    throw std::runtime_error("can't write " + options.json);
  }
}

unisono::parallel::PipelineOptions pipeline_options(const Options& options, int n_ranks) {
  return {.schedule = options.schedule,
          .chunks = options.chunks,
          .stages_per_rank = stages_per_rank(options, n_ranks)};
}

void add_gradients(unisono::parallel::Pipeline& model,
                   const torch::Tensor& input,
                   const torch::Tensor& target) {
  model.train_step(input, target, [](const torch::Tensor& output, const torch::Tensor& wanted) {
    return torch::nn::functional::mse_loss(output, wanted);
  });
}

void make_step(unisono::parallel::Pipeline& model,
               const torch::Tensor& input,
               const torch::Tensor& target) {
  model.zero_grad();
  add_gradients(model, input, target);
}

// Returns the maximum over all ranks, without the gradients, which the first step allocates. Uses a
// separate pipeline, because the measurement takes time.
double peak_activation_mib(const std::shared_ptr<unisono::ProcessGroup>& group,
                           const Options& options,
                           const torch::Tensor& batch) {
  unisono::parallel::PipelineOptions with_memory = pipeline_options(options, group->world_size());
  with_memory.measures_memory = true;
  unisono::parallel::Pipeline model(group, make_net(options), with_memory);
  for (int step = 0; step < 2; ++step) {
    add_gradients(model, batch, batch);
  }
  double peak = static_cast<double>(model.last_step().peak_activation_bytes) / kBytesPerMiB;
  group->all_reduce(unisono::as_buffer(std::span(&peak, 1)), {.op = unisono::kMax});
  return peak;
}

void measure(const Options& options) {
  const auto group = unisono::init_process_group();
  unisono::parallel::Pipeline model(
      group, make_net(options), pipeline_options(options, group->world_size()));
  const torch::Tensor input = torch::randn({options.batch, options.width});
  const torch::Tensor target = torch::randn({options.batch, options.width});
  std::vector<double> slowest_ms;
  for (int step = 0; step < 1 + kWarmUp + options.steps; ++step) {
    group->barrier();
    const auto start = std::chrono::steady_clock::now();
    make_step(model, input, target);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    slowest_ms.push_back(time.count());
  }
  group->all_reduce(unisono::as_buffer(std::span(slowest_ms)), {.op = unisono::kMax});
  std::vector<double> counted(slowest_ms.begin() + 1 + kWarmUp, slowest_ms.end());
  std::ranges::sort(counted);
  const double bubble = unisono::pipeline::bubble(model.timeline());
  const double peak_mib = peak_activation_mib(group, options, input);
  if (group->rank() == 0) {
    std::vector<char> line(300);
    std::snprintf(line.data(),
                  line.size(),
                  R"({"schedule": "%s", "chunks": %d, "step_ms_median": %.4f, )"
                  R"("first_step_ms": %.4f, "bubble": %.4f, "peak_activation_mib": %.3f})"
                  "\n",
                  options.schedule.c_str(),
                  options.chunks,
                  counted[counted.size() / 2],
                  slowest_ms.front(),
                  bubble,
                  peak_mib);
    write(options, line.data());
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures steps of a pipeline: unisono run -n 2 pipeline_bench --chunks 8");
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  const auto add_number = [&](const char* name, int& value, const char* help) {
    app.add_option(name, value, help)->check(positive)->capture_default_str();
  };
  add_number("--stages", options.stages, "Parts of the model");
  add_number("--width", options.width, "Inputs and outputs of each layer");
  add_number("--layers", options.layers, "Linear layers");
  add_number("--batch", options.batch, "Samples in a step");
  add_number("--chunks", options.chunks, "Parts of the batch");
  add_number("--steps", options.steps, "Steps to measure");
  app.add_option("--schedule", options.schedule, "Schedule of `unisono plan pipeline`")
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the result into this file");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    measure(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline_bench: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
