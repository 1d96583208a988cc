// Measures training steps, on one process or on the ranks it is started on:
//
//     unisono run -n 2 train_step --model mlp

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "unisono/comm/process_group.h"

#include "measure.h"
#include "options.h"
#include "workload.h"

namespace {

std::string quantiles_as_json(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const auto at = [&](double quantile) {
    return seconds[static_cast<std::size_t>(quantile * static_cast<double>(seconds.size() - 1))];
  };
  char text[128];
  std::snprintf(text,
                sizeof(text),
                R"({"min": %.9f, "median": %.9f, "p99": %.9f})",
                at(0),
                at(0.5),
                at(0.99));
  return text;
}

void print(const bench::StepTimes& times, int world_size) {
  std::string line = R"({"ranks": )" + std::to_string(world_size) + R"(, "step": )" +
                     quantiles_as_json(times.synchronized);
  if (!times.unsynchronized.empty()) {
    line += R"(, "step_without_sync": )" + quantiles_as_json(times.unsynchronized);
  }
  std::printf("%s}\n", line.c_str());
}

void measure(const bench::Options& options) {
  if (options.is_alone) {
    print(bench::measure_alone(bench::make_workload(options.model, 0), options.steps), 1);
    return;
  }
  const std::shared_ptr<unisono::ProcessGroup> group = unisono::init_process_group();
  const bench::StepTimes times = bench::measure_ranks(
      group, bench::make_workload(options.model, group->rank()), options.steps);
  if (group->rank() == 0) {
    print(times, group->world_size());
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::ParsedOptions parsed = bench::parse_options(argc, argv);
  if (parsed.is_done) {
    return parsed.exit_code;
  }
  try {
    at::set_num_threads(1);
    measure(parsed.options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
