#include "unisono/pipeline/simulate.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/finish_times.h"
#include "unisono/pipeline/inputs.h"
#include "unisono/pipeline/next_action.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Simulation {
 public:
  Simulation(const Schedule& schedule,
             const TimeOf& time_of_action,
             const SimulationOptions& options)
      : schedule_(schedule),
        time_of_action_(time_of_action),
        options_(options),
        finished_(schedule.n_stages(), schedule.n_chunks) {
    for (int rank = 0; rank < schedule.n_ranks(); ++rank) {
      ranks_.push_back({.progress = start(schedule, rank)});
    }
    timeline_.ranks.resize(ranks_.size());
  }

  // Always the action that begins first, so that nothing that begins later can still change it.
  Timeline run() {
    while (true) {
      Start first;
      for (int number = 0; number < schedule_.n_ranks(); ++number) {
        Rank& rank = ranks_[as_index(number)];
        if (!rank.next) {
          rank.next = next_start(number);
        }
        if (rank.next->time < first.time) {
          first = *rank.next;
        }
      }
      if (first.time == kNever) {
        break;
      }
      begin(first);
    }
    for (const Rank& rank : ranks_) {
      UNISONO_CHECK(rank.progress.remaining.empty(), "pipeline: a schedule that stands still");
    }
    return std::move(timeline_);
  }

 private:
  struct Start {
    double time = kNever;
    int rank = 0;
    std::size_t place = 0;
  };

  struct Rank {
    RankProgress progress;
    double idle_from = 0;
    std::optional<Start> next = {};  // Unless something has happened since.
  };

  [[nodiscard]] double ready_at(const Action& action) const {
    return finished_.ready_at(action, schedule_, options_.transfer, options_.skips);
  }

  [[nodiscard]] Start next_start(int number) const {
    const Rank& rank = ranks_[as_index(number)];
    if (rank.progress.remaining.empty()) {
      return {};
    }
    if (!options_.is_by_arrival) {
      return {.time = std::max(rank.idle_from, ready_at(rank.progress.remaining.front())),
              .rank = number};
    }
    // The first moment at which something is there that may be done, and then what is next.
    double moment = kNever;
    (void)next_action(rank.progress, [&](const Action& action) {
      moment = std::min(moment, std::max(rank.idle_from, ready_at(action)));
      return false;
    });
    if (moment == kNever) {
      return {};
    }
    const auto place = next_action(
        rank.progress, [&](const Action& action) { return ready_at(action) <= moment; });
    return {.time = moment, .rank = number, .place = place.value()};
  }

  void begin(const Start& at) {
    Rank& rank = ranks_[as_index(at.rank)];
    const Action action = take(rank.progress, at.place);
    rank.idle_from = at.time + time_of_action_(action);
    finished_.set(action, rank.idle_from);
    timeline_.ranks[as_index(at.rank)].push_back(
        {.action = action, .start = at.time, .end = rank.idle_from});
    forget_next(action.stage);
    forget_next(action.stage - 1);
    forget_next(action.stage + 1);
    for (const Skip& skip : options_.skips) {
      forget_next(skip.from == action.stage ? skip.to : skip.from);
    }
  }

  // Of the rank of a stage that is concerned, if there is such a stage.
  void forget_next(int stage) {
    if (stage >= 0 && stage < schedule_.n_stages()) {
      ranks_[as_index(schedule_.rank_of_stage[as_index(stage)])].next.reset();
    }
  }

  const Schedule& schedule_;
  const TimeOf& time_of_action_;
  const SimulationOptions& options_;
  FinishTimes finished_;
  std::vector<Rank> ranks_;
  Timeline timeline_;
};

}  // namespace

TimeOf time_of(std::vector<StageTimes> stages) {
  return [stages = std::move(stages)](const Action& action) {
    const StageTimes& times = stages[as_index(action.stage)];
    switch (action.kind) {
      case ActionKind::kForward:
        return times.forward;
      case ActionKind::kBackward:
        return times.backward();
      case ActionKind::kBackwardInput:
        return times.backward_input;
      case ActionKind::kBackwardWeight:
        return times.backward_weight;
    }
    return 0.0;
  };
}

Timeline simulate(const Schedule& schedule,
                  const TimeOf& time_of_action,
                  const SimulationOptions& options) {
  return Simulation(schedule, time_of_action, options).run();
}

}  // namespace unisono::pipeline
