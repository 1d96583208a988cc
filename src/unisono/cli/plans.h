#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::cli {

/// A training on equal nodes.
struct SlurmWish {
  int n_nodes = 1;
  int gpus_per_node = 0;   ///< 0: ranks without GPUs, `tasks_per_node` on each node.
  int n_parts = 1;         ///< Number of parts of a rank's model, each on its own GPU.
  int tasks_per_node = 1;  ///< Used without GPUs.
  int cpus_per_node = 0;   ///< 0: Slurm's default.
};

/// Resources that a batch script requests from Slurm.
struct SlurmPlan {
  int n_nodes = 1;
  int tasks_per_node = 1;
  int n_tasks = 1;
  int gpus_per_node = 0;
  int cpus_per_task = 0;  ///< 0: not requested.

  friend bool operator==(const SlurmPlan&, const SlurmPlan&) = default;
};

/// Returns a plan with one task per rank.
///
/// Throws Error(kInvalidArgument) if a node's GPUs cannot be divided by the number of parts, for
/// several parts without GPUs, and for a number out of range.
[[nodiscard]] SlurmPlan make_slurm_plan(const SlurmWish& wish);

/// Returns a batch script: the "#SBATCH" lines and the command in `program`.
[[nodiscard]] std::string batch_script(const SlurmPlan& plan, const std::string& program);

/// Reads a CSV file with a line for each layer, as pipeline::to_csv() writes it. The header names
/// the columns forward_ms and backward_ms. Two columns are optional: weight_ms (the part of
/// backward that computes weight gradients; default: half of backward) and activation_mib. Other
/// columns are ignored.
///
/// Throws Error: kNotFound, kSystem, kCorruptData for invalid CSV; kInvalidArgument, with file,
/// line and column, for an invalid or negative number and for a file without layers.
[[nodiscard]] pipeline::LayerCosts read_layer_costs(const std::string& path);

/// Quantity by which layers are divided.
enum class Balance : std::uint8_t { kTime, kMemory, kCount };

/// Request for a plan of a training in which the model is divided among ranks.
struct PipelineWish {
  int n_ranks = 4;
  int n_chunks = 8;
  int stages_per_rank = 2;               ///< Used if the schedule leaves the number open.
  pipeline::StageTimes rank_times = {};  ///< Milliseconds of a chunk in all stages of a rank.
  std::optional<pipeline::LayerCosts> layers = {};  ///< Used instead of rank_times.
  Balance balance = Balance::kTime;
  double transfer_ms = 0;
  bool is_by_arrival = false;
};

/// Result for one schedule.
struct PipelinePlan {
  std::string name;
  pipeline::Schedule schedule;
  std::vector<pipeline::LayerRange> parts;  ///< Layers of each stage; empty if unknown.
  std::vector<pipeline::StageTimes> stages;
  std::vector<double> activation_mib;  ///< Activations of a chunk in each stage; empty if unknown.
  pipeline::Timeline timeline;
  /// Idle time by the formula, if this case has a formula.
  std::optional<pipeline::IdleTime> formula;
};

/// Returns the plan for a known schedule. Throws Error(kInvalidArgument) for layers that cannot be
/// divided as requested.
[[nodiscard]] PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                              const pipeline::KnownSchedule& known);

/// Returns the plan for a schedule from a file. The ranks and chunks of the schedule replace those
/// of `wish`.
[[nodiscard]] PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                              pipeline::Schedule schedule,
                                              const std::string& name);

/// Returns the picture, and the times of the step and of each rank.
[[nodiscard]] std::string describe(const PipelinePlan& plan);

/// Returns a line for each plan.
[[nodiscard]] std::string compare(const std::vector<PipelinePlan>& plans);

}  // namespace unisono::cli
