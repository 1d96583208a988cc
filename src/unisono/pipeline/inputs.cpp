#include "unisono/pipeline/inputs.h"

#include <vector>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

std::vector<int> input_stages(const Action& action, int n_stages, const std::vector<Skip>& skips) {
  std::vector<int> stages;
  switch (action.kind) {
    case ActionKind::kForward:
      if (action.stage > 0) {
        stages.push_back(action.stage - 1);
      }
      for (const Skip& skip : skips) {
        if (skip.to == action.stage) {
          stages.push_back(skip.from);
        }
      }
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      if (action.stage + 1 < n_stages) {
        stages.push_back(action.stage + 1);
      }
      for (const Skip& skip : skips) {
        if (skip.from == action.stage) {
          stages.push_back(skip.to);
        }
      }
      break;
    case ActionKind::kBackwardWeight:
      break;
  }
  return stages;
}

}  // namespace unisono::pipeline
