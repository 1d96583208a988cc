#pragma once

#include <functional>
#include <vector>

#include "unisono/pipeline/inputs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {

/// What a chunk takes in one stage, in any unit of time.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double backward() const { return backward_input + backward_weight; }

  [[nodiscard]] double sum() const { return forward + backward(); }
};

/// How long an action takes.
using TimeOf = std::function<double(const Action&)>;

/// Of stages that take the same time for each chunk.
[[nodiscard]] TimeOf time_of(std::vector<StageTimes> stages);

struct SimulationOptions {
  double transfer = 0;           ///< From one rank to another, while both go on computing.
  std::vector<Skip> skips = {};  ///< Outputs that are inputs of stages farther on, too.
  /// Whether ranks do what has arrived (`next_action()`), else what is next in their order.
  bool is_by_arrival = false;
};

/// What a step of the schedule, which must be valid, takes by these times.
[[nodiscard]] Timeline simulate(const Schedule& schedule,
                                const TimeOf& time_of_action,
                                const SimulationOptions& options = {});

}  // namespace unisono::pipeline
