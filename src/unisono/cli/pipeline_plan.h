#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::cli {

/// What layers are divided by.
enum class Balance : std::uint8_t { kTime, kMemory, kCount };

/// A training whose model is divided among ranks.
struct PipelineWish {
  int n_ranks = 4;
  int n_chunks = 8;
  int stages_per_rank = 2;               ///< Where the schedule leaves it open.
  pipeline::StageTimes rank_times = {};  ///< Of a chunk in all stages of a rank, in milliseconds.
  std::optional<pipeline::LayerCosts> layers = {};  ///< Instead of rank_times.
  Balance balance = Balance::kTime;
  double transfer_ms = 0;
  bool is_by_arrival = false;
};

/// What comes of it with one schedule.
struct PipelinePlan {
  std::string name;
  pipeline::Schedule schedule;
  std::vector<pipeline::LayerRange> parts;  ///< The layers of each stage, if they are known.
  std::vector<pipeline::StageTimes> stages;
  std::vector<double> activation_mib;  ///< Of a chunk in each stage, or empty.
  pipeline::Timeline timeline;
  /// As a formula has it, if one is known for this case.
  std::optional<pipeline::IdleTime> formula;
};

/// Throws Error(kInvalidArgument) for layers that can't be divided so.
[[nodiscard]] PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                              const pipeline::KnownSchedule& known);

/// The same for a schedule that was read: its ranks and chunks count, not those of the wish.
[[nodiscard]] PipelinePlan make_pipeline_plan(const PipelineWish& wish,
                                              pipeline::Schedule schedule,
                                              const std::string& name);

/// The picture, and what the step and each rank take.
[[nodiscard]] std::string describe(const PipelinePlan& plan);

/// A line for each plan.
[[nodiscard]] std::string compare(const std::vector<PipelinePlan>& plans);

}  // namespace unisono::cli
