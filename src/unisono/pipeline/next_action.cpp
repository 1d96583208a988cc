#include "unisono/pipeline/next_action.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {
namespace {

// What the actions that are overtaken leave to those behind them.
class Overtaken {
 public:
  explicit Overtaken(const RankProgress& progress)
      : n_activations_(progress.n_activations),
        peak_(progress.n_activations),
        max_activations_(progress.max_activations) {}

  [[nodiscard]] bool lets_pass(const Action& action) const {
    // Its activation is there, too, while those that it overtakes are done.
    const bool has_room = peak_ + change_of_activations(action.kind) <= max_activations_;
    return (action.kind != ActionKind::kForward || has_room) &&
           !chunks_.contains({action.stage, action.chunk}) && !queues_.contains(queue_of(action));
  }

  void add(const Action& action) {
    chunks_.emplace(action.stage, action.chunk);
    queues_.insert(queue_of(action));
    n_activations_ += change_of_activations(action.kind);
    peak_ = std::max(peak_, n_activations_);
  }

 private:
  enum class Pass : std::uint8_t { kForward, kInputGradients, kWeightGradients };

  // Actions of a queue keep their order.
  static std::pair<int, Pass> queue_of(const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
        return {action.stage, Pass::kForward};
      case ActionKind::kBackwardInput:
        return {action.stage, Pass::kInputGradients};
      case ActionKind::kBackward:
      case ActionKind::kBackwardWeight:
        break;
    }
    return {action.stage, Pass::kWeightGradients};
  }

  int n_activations_;
  int peak_;
  int max_activations_;
  std::set<std::pair<int, int>> chunks_;
  std::set<std::pair<int, Pass>> queues_;
};

}  // namespace

RankProgress start(const Schedule& schedule, int rank) {
  const std::vector<Action>& order = schedule.orders[as_index(rank)];
  return {.remaining = {order.begin(), order.end()},
          .n_activations = 0,
          .max_activations = peak_activations(schedule, rank)};
}

std::optional<std::size_t> next_action(const RankProgress& progress,
                                       const HasArrived& has_arrived) {
  Overtaken overtaken(progress);
  for (std::size_t place = 0; place < progress.remaining.size(); ++place) {
    const Action& action = progress.remaining[place];
    if (overtaken.lets_pass(action) && has_arrived(action)) {
      return place;
    }
    overtaken.add(action);
  }
  return std::nullopt;
}

Action take(RankProgress& progress, std::size_t place) {
  const Action action = progress.remaining[place];
  progress.remaining.erase(progress.remaining.begin() + static_cast<std::ptrdiff_t>(place));
  progress.n_activations += change_of_activations(action.kind);
  return action;
}

}  // namespace unisono::pipeline
