#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/cli/slurm_plan.h"

namespace unisono::cli {

int plan_command(const CommandLine& line) {
  CLI::App app(
      "Prints a batch script for a training on nodes that are all alike, one task per rank",
      "unisono plan");
  app.require_subcommand(1);
  CLI::App* const slurm = app.add_subcommand("slurm", "For Slurm's sbatch");
  SlurmWish wish;
  std::vector<std::string> program{"./train"};
  slurm->prefix_command();
  slurm->add_option("--nodes", wish.n_nodes, "Number of nodes (default 1)");
  slurm->add_option("--gpus-per-node", wish.gpus_per_node, "GPUs of each node (default 0)");
  slurm->add_option(
      "--parts", wish.n_parts, "GPUs of each rank, one for each part of its model (default 1)");
  slurm->add_option("--tasks-per-node",
                    wish.tasks_per_node,
                    "Ranks of each node, where it has no GPUs (default 1)");
  slurm->add_option("--cpus-per-node", wish.cpus_per_node, "Cores to divide among a node's ranks");
  add_examples(
      *slurm,
      {"unisono plan slurm --nodes 3 --gpus-per-node 4 --parts 2 ./train > job.sh; sbatch job.sh",
       "unisono plan slurm --nodes 2 --tasks-per-node 8 --cpus-per-node 64 ./train"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  if (!slurm->remaining().empty()) {
    program = slurm->remaining();
  }
  fmt::print("{}", batch_script(make_slurm_plan(wish), fmt::format("{}", fmt::join(program, " "))));
  return 0;
}

}  // namespace unisono::cli
