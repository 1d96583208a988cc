#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <torch/utils.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/render.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/optim/adamw.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "hybrid_options.h"
#include "tensors.h"
#include "transformer.h"

namespace imdb {
namespace {

constexpr int kWarmUp = 2;
constexpr double kMiB = 1 << 20;

}  // namespace

Batch random_batch(const HybridOptions& options,
                   const unisono::parallel::Mesh& mesh,
                   std::int64_t ntokens) {
  torch::manual_seed(static_cast<std::uint64_t>(options.seed + mesh.coordinate("data")));
  const auto length = static_cast<std::int64_t>(options.max_length);
  return {.tokens = torch::randint(2, ntokens, {options.batch_size, length}, torch::kLong),
          .labels = torch::randint(2, {options.batch_size}, torch::kLong)};
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) {
    throw unisono::Error(unisono::ErrorCode::kSystem, "can't write " + path);
  }
}

void draw(const std::string& path,
          const unisono::parallel::Mesh& mesh,
          unisono::parallel::Pipeline& model) {
  const unisono::pipeline::Timeline step = model.timeline();
  if (mesh.world()->rank() == 0) {
    write(path, unisono::pipeline::render_svg(step, "ms"));
  }
}

void measure(const HybridOptions& options,
             const unisono::parallel::Mesh& mesh,
             unisono::parallel::Pipeline& model,
             std::int64_t ntokens) {
  const Batch batch = random_batch(options, mesh, ntokens);
  unisono::optim::AdamW optimizer(model.parameters());
  std::vector<double> steps_ms;
  double peak_mib = 0;
  for (int step = 0; step < kWarmUp + options.steps; ++step) {
    mesh.world()->barrier();
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    model.train_step(batch.tokens, batch.labels, loss_of);
    optimizer.step();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (step >= kWarmUp) {
      steps_ms.push_back(time.count());
      peak_mib =
          std::max(peak_mib, static_cast<double>(model.last_step().peak_activation_bytes) / kMiB);
    }
  }
  std::vector<double> slowest = steps_ms;
  slowest.push_back(peak_mib);
  mesh.world()->all_reduce(unisono::as_buffer(std::span(slowest)), {.op = unisono::kMax});
  peak_mib = slowest.back();
  slowest.pop_back();
  std::ranges::sort(slowest);
  const double median_ms = slowest[slowest.size() / 2];
  const double bubble = unisono::pipeline::bubble(model.timeline());
  if (mesh.world()->rank() == 0) {
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
    write(options.json, line.data());
  }
}

}  // namespace imdb
