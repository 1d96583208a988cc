#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
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

  // Always begins the earliest action, because a later action cannot change it.
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
      UNISONO_CHECK(rank.progress.remaining.empty(), "pipeline: the schedule can't proceed");
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
    ScheduleProgress progress;
    double idle_from = 0;
    std::optional<Start> next = {};  // std::nullopt: to be computed again.
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
    // Finds first the earliest moment at which the rank can do any action, then its choice at that
    // moment.
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

  // Discards the choice of the rank of a stage, if the stage exists.
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

FinishTimes::FinishTimes(int n_stages, int n_chunks)
    : n_stages_(n_stages),
      n_chunks_(n_chunks),
      ends_(2 * as_index(n_stages) * as_index(n_chunks), std::numeric_limits<double>::infinity()) {}

std::size_t FinishTimes::index_of(bool is_forward, int stage, int chunk) const {
  const std::size_t first = is_forward ? 0 : as_index(n_stages_);
  return (first + as_index(stage)) * as_index(n_chunks_) + as_index(chunk);
}

void FinishTimes::set(const Action& action, double end) {
  if (action.kind != ActionKind::kBackwardWeight) {
    ends_[index_of(action.kind == ActionKind::kForward, action.stage, action.chunk)] = end;
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
                     ends_[index_of(is_forward, stage, action.chunk)] + (is_sent ? transfer : 0));
  }
  return ready;
}

}  // namespace unisono::pipeline
