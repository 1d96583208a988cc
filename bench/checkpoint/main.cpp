// Measures checkpoints of a state that the ranks share, on the ranks on which the program is
// started:
//
//     unisono run -n 2 checkpoint_bench save FOLDER --mib 1024
//
// Rank 0 prints a line of JSON: the seconds of the slowest rank in each repetition.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

#include "operations.h"

namespace {

void run(const bench::Options& options) {
  const std::shared_ptr<unisono::ProcessGroup> group = unisono::init_process_group();
  bench::Measured measured = bench::measure(*group, options);
  std::vector<double> numbers = measured.seconds;
  numbers.push_back(measured.more_memory);
  group->all_reduce(unisono::as_buffer(std::span(numbers)), {.op = unisono::kMax});
  if (group->rank() == 0) {
    const std::span seconds(numbers.data(), numbers.size() - 1);
    fmt::print(
        "{{\"seconds\": [{}], \"more_memory\": {}}}\n", fmt::join(seconds, ", "), numbers.back());
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Options options;
  CLI::App app("Measures checkpoints");
  app.add_option("operation", options.operation)
      ->required()
      ->check(CLI::IsMember(bench::operation_names()));
  app.add_option("folder", options.folder, "the folder of checkpoints")->required();
  app.add_option("--mib", options.n_mib, "of all ranks, in tensors of 16 MiB");
  app.add_option("--times", options.n_times)->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
