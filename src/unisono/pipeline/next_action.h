#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// Progress of a rank in the schedule of a step.
struct ScheduleProgress {
  std::deque<Action> remaining;  ///< Actions not started, in the order of the schedule.
  int n_activations = 0;         ///< Activations held now.
  int max_activations = 0;       ///< Allowed: the peak of the schedule, or more.
  /// Number of queues: a queue per stage and pass, which keeps its order.
  std::size_t n_queues = 0;
};

/// Returns the progress of `rank` at the start of a step.
[[nodiscard]] ScheduleProgress start(const Schedule& schedule, int rank);

/// Returns the progress at the start of a step without backward. The number of activations has no
/// limit.
[[nodiscard]] ScheduleProgress start_forwards(const Schedule& schedule, int rank);

/// Returns true if all inputs of an action from other stages (`input_stages()`) have arrived.
/// Called only for actions that can start otherwise.
using HasArrived = std::function<bool(const Action&)>;

/// Returns the index of the next action: the first in the order of the schedule that can start now,
/// or std::nullopt if the rank has to wait. A late message delays only the actions that need it.
///
/// An action may overtake other actions under three conditions:
///
/// - a chunk goes through a stage forward, then backward;
/// - each stage computes forwards, and adds gradients, in the order of the schedule, so that the
///   bits of a step do not depend on the speed of ranks;
/// - the remaining actions, in the order of the schedule, never hold more activations than allowed.
///
/// The third condition reserves memory for overtaken actions. The first of all remaining actions,
/// in the order in which the schedule runs them, can therefore always start: ranks never wait in a
/// cycle, in whatever order messages arrive.
[[nodiscard]] std::optional<std::size_t> next_action(const ScheduleProgress& progress,
                                                     const HasArrived& has_arrived);

/// Removes the action at `place` from the remaining actions, because the action starts. Returns the
/// action.
Action take(ScheduleProgress& progress, std::size_t place);

}  // namespace unisono::pipeline
