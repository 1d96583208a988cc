#include "unisono/pipeline/finish_times.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/inputs.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

FinishTimes::FinishTimes(int n_stages, int n_chunks)
    : n_stages_(n_stages),
      n_chunks_(n_chunks),
      ends_(2 * as_index(n_stages) * as_index(n_chunks), std::numeric_limits<double>::infinity()) {}

std::size_t FinishTimes::place_of(bool is_forward, int stage, int chunk) const {
  const std::size_t first = is_forward ? 0 : as_index(n_stages_);
  return (first + as_index(stage)) * as_index(n_chunks_) + as_index(chunk);
}

void FinishTimes::set(const Action& action, double end) {
  if (action.kind != ActionKind::kBackwardWeight) {
    ends_[place_of(action.kind == ActionKind::kForward, action.stage, action.chunk)] = end;
  }
}

double FinishTimes::ready_at(const Action& action,
                             const Schedule& schedule,
                             double transfer,
                             const std::vector<Skip>& skips) const {
  const bool is_forward = action.kind == ActionKind::kForward;
  const int rank = schedule.rank_of_stage[as_index(action.stage)];
  double ready = -std::numeric_limits<double>::infinity();
  for (const int stage : input_stages(action, n_stages_, skips)) {
    const bool is_sent = schedule.rank_of_stage[as_index(stage)] != rank;
    ready = std::max(ready,
                     ends_[place_of(is_forward, stage, action.chunk)] + (is_sent ? transfer : 0));
  }
  return ready;
}

}  // namespace unisono::pipeline
