#include "unisono/pipeline/next_action.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace unisono::pipeline {
namespace {

enum class Pass : std::uint8_t { kForward, kInputGradients, kWeightGradients };

using Queue = std::pair<int, Pass>;

// Returns the queue of an action. Actions of a queue keep their order.
Queue queue_of(const Action& action) {
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

ScheduleProgress begin(std::deque<Action> remaining, int max_activations) {
  std::set<Queue> queues;
  for (const Action& action : remaining) {
    queues.insert(queue_of(action));
  }
  return {.remaining = std::move(remaining),
          .n_activations = 0,
          .max_activations = max_activations,
          .n_queues = queues.size()};
}

// The limits that overtaken actions set for later actions.
class Overtaken {
 public:
  explicit Overtaken(const ScheduleProgress& progress)
      : n_activations_(progress.n_activations),
        peak_(progress.n_activations),
        max_activations_(progress.max_activations),
        n_queues_(progress.n_queues) {}

  [[nodiscard]] bool lets_none_pass() const { return queues_.size() == n_queues_; }

  [[nodiscard]] bool lets_pass(const Action& action) const {
    // The activation of `action` also exists while the overtaken actions run.
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
  int n_activations_;
  int peak_;
  int max_activations_;
  std::size_t n_queues_;
  std::set<std::pair<int, int>> chunks_;
  std::set<Queue> queues_;
};

}  // namespace

ScheduleProgress start(const Schedule& schedule, int rank) {
  const std::vector<Action>& order = schedule.orders[as_index(rank)];
  return begin({order.begin(), order.end()}, peak_activations(schedule, rank));
}

ScheduleProgress start_forwards(const Schedule& schedule, int rank) {
  std::deque<Action> forwards;
  std::ranges::copy_if(schedule.orders[as_index(rank)],
                       std::back_inserter(forwards),
                       [](const Action& action) { return action.kind == ActionKind::kForward; });
  return begin(std::move(forwards), std::numeric_limits<int>::max());
}

std::optional<std::size_t> next_action(const ScheduleProgress& progress,
                                       const HasArrived& has_arrived) {
  Overtaken overtaken(progress);
  for (std::size_t place = 0; place < progress.remaining.size() && !overtaken.lets_none_pass();
       ++place) {
    const Action& action = progress.remaining[place];
    if (overtaken.lets_pass(action) && has_arrived(action)) {
      return place;
    }
    overtaken.add(action);
  }
  return std::nullopt;
}

Action take(ScheduleProgress& progress, std::size_t place) {
  const Action action = progress.remaining[place];
  progress.remaining.erase(progress.remaining.begin() + static_cast<std::ptrdiff_t>(place));
  progress.n_activations += change_of_activations(action.kind);
  return action;
}

}  // namespace unisono::pipeline
