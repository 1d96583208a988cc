#include "unisono/pipeline/fill_with_weights.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/finish_times.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {
namespace {

class Rank {
 public:
  Rank(const std::vector<Action>& order, int max_activations)
      : waiting_(order.begin(), order.end()), max_activations_(max_activations) {}

  [[nodiscard]] bool is_over() const { return waiting_.empty() && owed_.empty(); }

  // What it does next, given what was done before `now`.
  std::optional<Action> step(const Schedule& schedule, const FinishTimes& done, int now) {
    if (!waiting_.empty() && can_start(schedule, done, now)) {
      const Action action = waiting_.front();
      waiting_.pop_front();
      n_activations_ += change_of_activations(action.kind);
      if (action.kind == ActionKind::kBackwardInput) {
        owed_.push_back(
            {.kind = ActionKind::kBackwardWeight, .stage = action.stage, .chunk = action.chunk});
      }
      return action;
    }
    if (owed_.empty()) {
      return std::nullopt;
    }
    const Action action = owed_.front();
    owed_.pop_front();
    --n_activations_;
    return action;
  }

 private:
  [[nodiscard]] bool can_start(const Schedule& schedule, const FinishTimes& done, int now) const {
    const Action& action = waiting_.front();
    const bool has_room = action.kind != ActionKind::kForward || n_activations_ < max_activations_;
    return has_room && done.ready_at(action, schedule) <= now;
  }

  std::deque<Action> waiting_;
  std::deque<Action> owed_;
  int n_activations_ = 0;
  int max_activations_;
};

}  // namespace

Schedule fill_with_weights(const Schedule& schedule, int max_activations) {
  Schedule filled = schedule;
  std::vector<Rank> ranks;
  for (std::vector<Action>& order : filled.orders) {
    ranks.emplace_back(order, max_activations);
    order.clear();
  }
  FinishTimes done(schedule.n_stages(), schedule.n_chunks);
  const auto is_over = [](const Rank& rank) { return rank.is_over(); };
  for (int now = 0; !std::all_of(ranks.begin(), ranks.end(), is_over); ++now) {
    bool is_going_on = false;
    for (int number = 0; number < schedule.n_ranks(); ++number) {
      if (const auto action = ranks[as_index(number)].step(schedule, done, now)) {
        done.set(*action, now + 1);
        filled.orders[as_index(number)].push_back(*action);
        is_going_on = true;
      }
    }
    UNISONO_CHECK(is_going_on, "pipeline: too few activations for the schedule");
  }
  return filled;
}

}  // namespace unisono::pipeline
