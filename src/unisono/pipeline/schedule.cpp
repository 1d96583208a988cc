#include "unisono/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace unisono::pipeline {

const char* to_string(ActionKind kind) noexcept {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "input gradients";
    case ActionKind::kBackwardWeight:
      return "weight gradients";
  }
  return "unknown";
}

char letter_of(ActionKind kind) noexcept {
  switch (kind) {
    case ActionKind::kForward:
      return 'F';
    case ActionKind::kBackward:
      return 'B';
    case ActionKind::kBackwardInput:
      return 'I';
    case ActionKind::kBackwardWeight:
      return 'W';
  }
  return '?';
}

std::string describe(const Action& action) {
  return fmt::format(
      "{} of chunk {} in stage {}", to_string(action.kind), action.chunk, action.stage);
}

int stages_of(const Schedule& schedule, int rank) {
  return static_cast<int>(
      std::count(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), rank));
}

int peak_activations(const Schedule& schedule, int rank) {
  int n_live = 0;
  int peak = 0;
  for (const Action& action : schedule.orders[static_cast<std::size_t>(rank)]) {
    n_live += change_of_activations(action.kind);
    peak = std::max(peak, n_live);
  }
  return peak;
}

}  // namespace unisono::pipeline
