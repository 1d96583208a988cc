#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/base/config.h"
#include "unisono/base/gpus.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/launch/run.h"
#include "unisono/rendezvous/local_device.h"

namespace unisono::cli {
namespace {

void warn(std::string_view what) {
  fmt::print(stderr, "[unisono] warning: {}\n", what);
}

void print_gpus(const Gpus& gpus) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  if (gpus.visible.empty()) {
    fmt::print("no GPU visible: {}\n", gpus.explanation);
    return;
  }
  for (const Gpu& gpu : gpus.visible) {
    fmt::print("cuda:{}  {}  {:.1f} GiB  {}\n",
               gpu.index,
               gpu.name,
               static_cast<double>(gpu.n_bytes) / kGibibyte,
               gpu.uuid);
  }
  if (!gpus.explanation.empty()) {
    warn(gpus.explanation);
  }
}

}  // namespace

int devices_command(const CommandLine& line) {
  CLI::App app(
      "Lists the GPUs that a program started here may use, and which rank of a node gets\n"
      "which: cuda:LOCAL_RANK, or the CPU where there are none.",
      "unisono devices");
  int n_ranks = 0;
  app.add_option("-n,--nproc-per-node,--nproc_per_node",
                 n_ranks,
                 "Also say which GPU each of so many ranks gets")
      ->check(CLI::Range(1, launch::kMaxWorkers))
      ->type_name("N");
  add_examples(app, {"unisono devices", "unisono devices -n 8"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  const Environment environment = process_environment();
  const std::optional<int> own_rank = rendezvous::own_local_rank(environment);
  const Gpus gpus = find_gpus(environment);
  const int n_gpus = static_cast<int>(gpus.visible.size());
  print_gpus(gpus);
  for (int local_rank = 0; local_rank < n_ranks; ++local_rank) {
    fmt::print("local rank {}: {}\n",
               local_rank,
               rendezvous::describe(rendezvous::device_of_local_rank(local_rank, n_gpus)));
  }
  if (own_rank) {
    fmt::print("this is local rank {}: {}\n",
               *own_rank,
               rendezvous::describe(rendezvous::device_of_local_rank(*own_rank, n_gpus)));
  }
  if (const std::string shared = rendezvous::describe_shared_gpus(n_ranks, n_gpus);
      !shared.empty()) {
    warn(shared);
  }
  return 0;
}

}  // namespace unisono::cli
