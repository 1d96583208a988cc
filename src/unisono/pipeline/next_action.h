#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// How far a rank is in its schedule.
struct RankProgress {
  std::deque<Action> remaining;  ///< Not begun yet, in the schedule's order.
  int n_activations = 0;         ///< That it holds.
  int max_activations = 0;       ///< That it may hold: what the schedule says, or more.
  std::size_t n_queues = 0;      ///< Of actions that keep their order: one for each stage and pass.
};

[[nodiscard]] RankProgress start(const Schedule& schedule, int rank);

/// Of a step that is forward alone, whatever activations it holds.
[[nodiscard]] RankProgress start_forwards(const Schedule& schedule, int rank);

/// Whether all that an action takes in from other stages (`input_stages()`) is with the rank. Asked
/// of actions that nothing else keeps.
using HasArrived = std::function<bool(const Action&)>;

/// Which of the remaining actions to do next: the first in the schedule's order that can be done
/// now; nothing where the rank has to wait. So a receive that is late holds up what needs it, and
/// nothing else.
///
/// An action may overtake others as far as these hold:
///
/// - a chunk goes through a stage forward, then backward;
/// - each stage takes its chunks forward, and adds their gradients up, in the schedule's order: the
///   bits of a step don't depend on who was fast;
/// - with what is left in the schedule's order the rank never holds more activations than it may.
///
/// The last keeps memory for those who are overtaken, so the first of all actions that are left,
/// in the order in which the schedule would run them, can always be done: no ranks ever wait for
/// each other, in whatever order messages arrive.
[[nodiscard]] std::optional<std::size_t> next_action(const RankProgress& progress,
                                                     const HasArrived& has_arrived);

/// Takes the action at that place out of what remains: it begins.
Action take(RankProgress& progress, std::size_t place);

}  // namespace unisono::pipeline
