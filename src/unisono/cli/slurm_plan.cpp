#include "unisono/cli/slurm_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "unisono/base/error.h"

namespace unisono::cli {

SlurmPlan make_slurm_plan(const SlurmWish& wish) {
  const bool has_gpus = wish.gpus_per_node > 0;
  if (wish.n_nodes < 1 || wish.gpus_per_node < 0 || wish.n_parts < 1 || wish.tasks_per_node < 1 ||
      wish.cpus_per_node < 0) {
    throw Error(ErrorCode::kInvalidArgument, "plan: nodes, parts and tasks are at least 1");
  }
  if (has_gpus && wish.gpus_per_node % wish.n_parts != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("plan: a node's {} GPUs can't be divided among ranks that take {} each, one "
                    "for each part of the model",
                    wish.gpus_per_node,
                    wish.n_parts));
  }
  if (!has_gpus && wish.n_parts > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: {} parts take as many GPUs for each rank: give --gpus-per-node",
                            wish.n_parts));
  }
  SlurmPlan plan{.n_nodes = wish.n_nodes, .gpus_per_node = wish.gpus_per_node};
  plan.tasks_per_node = has_gpus ? wish.gpus_per_node / wish.n_parts : wish.tasks_per_node;
  plan.n_tasks = plan.n_nodes * plan.tasks_per_node;
  if (wish.cpus_per_node > 0) {
    plan.cpus_per_task = std::max(1, wish.cpus_per_node / plan.tasks_per_node);
  }
  return plan;
}

std::string batch_script(const SlurmPlan& plan, const std::string& program) {
  std::string script = "#!/bin/sh\n";
  script += fmt::format("#SBATCH --nodes={}\n", plan.n_nodes);
  script += fmt::format("#SBATCH --ntasks-per-node={}\n", plan.tasks_per_node);
  if (plan.gpus_per_node > 0) {
    script += fmt::format("#SBATCH --gres=gpu:{}\n", plan.gpus_per_node);
  }
  if (plan.cpus_per_task > 0) {
    script += fmt::format("#SBATCH --cpus-per-task={}\n", plan.cpus_per_task);
  }
  script += fmt::format("# {} ranks\n", plan.n_tasks);
  // Steps since Slurm 22.05 do not take it over from the job.
  const char* const cpus =
      plan.cpus_per_task > 0 ? "--cpus-per-task=\"$SLURM_CPUS_PER_TASK\" " : "";
  return script + fmt::format("srun {}{}\n", cpus, program);
}

}  // namespace unisono::cli
