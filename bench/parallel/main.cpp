// Measures steps of a model with parts on several ranks, in sequence or in parallel, and compares
// these with the whole model on a single rank:
//
//     unisono run -n 2 partition_bench
//
// Rank 0 prints a line of JSON for each: name, ranks, step_ms (the median of the slowest rank's
// steps), speed_up (time of the whole model's step divided by this step's time), difference (from
// the whole model's output and gradients, relative to each tensor's largest element).

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "partitions.h"

namespace {

using Group = std::shared_ptr<unisono::ProcessGroup>;

constexpr int kUsageError = 2;
constexpr int kBlockSteps = 5;

double time_step(unisono::ProcessGroup& group, const bench::Partition& partition) {
  group.barrier();
  const auto start = std::chrono::steady_clock::now();
  partition.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Measures in turns, so that all partitions run under the same conditions. The first step of each
// turn is not counted.
std::vector<std::vector<double>> measure(unisono::ProcessGroup& group,
                                         const std::vector<bench::Partition>& partitions,
                                         int n_steps) {
  std::vector<std::vector<double>> times(partitions.size());
  while (times.back().size() < static_cast<std::size_t>(n_steps)) {
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      (void)time_step(group, partitions[i]);
      for (int step = 0; step < kBlockSteps; ++step) {
        times[i].push_back(time_step(group, partitions[i]));
      }
    }
  }
  for (std::vector<double>& of_partition : times) {
    group.all_reduce(unisono::as_buffer(std::span(of_partition)), {.op = unisono::kMax});
  }
  return times;
}

void run(const bench::ModelSize& size, int n_steps) {
  const Group group = unisono::init_process_group();
  const std::vector<bench::Partition> partitions = bench::make_partitions(group, size);
  const std::vector<std::vector<double>> times = measure(*group, partitions, n_steps);
  const double whole = median(times.front());
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    double difference = partitions[i].difference();
    group->all_reduce(unisono::as_buffer(std::span(&difference, 1)), {.op = unisono::kMax});
    const double seconds = median(times[i]);
    if (group->rank() == 0) {
      std::printf(
          "{\"name\": \"%s\", \"ranks\": %d, \"step_ms\": %.4f, \"speed_up\": %.3f, "
          "\"difference\": %.3g}\n",
          partitions[i].name.c_str(),
          group->world_size(),
          1e3 * seconds,
          whole / seconds,
          difference);
    }
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  bench::ModelSize size;
  int n_steps = 30;
  CLI::App app(
      "Measures steps of a model in parts, one after the other or side by side: unisono run -n 2 "
      "partition_bench");
  app.add_option("--blocks", size.blocks, "Pairs of linear layers, one rank's at least")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--width", size.width, "Features between them; within, four times as many")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--batch", size.batch, "Samples of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--steps", n_steps, "Steps to measure of each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  try {
    at::set_num_threads(1);
    run(size, n_steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "partition_bench: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
  return 0;
}
