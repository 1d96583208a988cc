#pragma once

#include <string>

namespace unisono::cli {

/// A training on nodes that are all alike.
struct SlurmWish {
  int n_nodes = 1;
  int gpus_per_node = 0;  ///< 0: ranks without GPUs, `tasks_per_node` of them on a node.
  int n_parts = 1;  ///< Into so many parts, each on a GPU of its own, a rank divides its model.
  int tasks_per_node = 1;  ///< Where there are no GPUs.
  int cpus_per_node = 0;   ///< 0: what Slurm gives.
};

/// What a batch script asks Slurm for.
struct SlurmPlan {
  int n_nodes = 1;
  int tasks_per_node = 1;
  int n_tasks = 1;
  int gpus_per_node = 0;
  int cpus_per_task = 0;  ///< 0: says nothing of it.

  friend bool operator==(const SlurmPlan&, const SlurmPlan&) = default;
};

/// One task per rank.
///
/// Throws Error(kInvalidArgument) where the parts don't divide a node's GPUs, or a number is not
/// positive.
[[nodiscard]] SlurmPlan make_slurm_plan(const SlurmWish& wish);

/// The "#SBATCH" lines, and the command in `program`.
[[nodiscard]] std::string batch_script(const SlurmPlan& plan, const std::string& program);

}  // namespace unisono::cli
