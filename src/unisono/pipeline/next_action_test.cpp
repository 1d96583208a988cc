#include "unisono/pipeline/next_action.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

using enum ActionKind;

// Returns the next action if every message except those of `late` has arrived.
std::optional<Action> next_without(const ScheduleProgress& progress, const std::set<Action>& late) {
  const auto place =
      next_action(progress, [&](const Action& action) { return !late.contains(action); });
  return place ? std::optional(progress.remaining[*place]) : std::nullopt;
}

TEST(NextAction, IsTheSchedulesNextWhereAllHasArrived) {
  for (const KnownSchedule& known : known_schedules()) {
    const Schedule schedule = known.make({.n_ranks = 4, .n_chunks = 8, .stages_per_rank = 2});
    ScheduleProgress progress = start(schedule, 1);
    for (const Action& action : schedule.orders[1]) {
      EXPECT_EQ(next_without(progress, {}), action) << known.name;
      EXPECT_EQ(take(progress, 0), action);
    }
    EXPECT_EQ(next_without(progress, {}), std::nullopt);
  }
}

TEST(NextAction, ALateMessageHoldsUpOnlyWhatNeedsIt) {
  // Rank 1: 1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1.
  ScheduleProgress progress = start(interleaved(2, 2, 2), 1);
  (void)take(progress, 0);
  EXPECT_EQ(next_without(progress, {{kForward, 1, 1}}), (Action{kForward, 3, 0}));
  // The backward of stage 3 needs no message.
  (void)take(progress, 1);
  EXPECT_EQ(next_without(progress, {{kForward, 1, 1}}), (Action{kBackward, 3, 0}));
}

TEST(NextAction, WeightGradientsFillAWait) {
  // Rank 1: 1F0,1I0,1F1,1I1,1W0,1F2,...
  ScheduleProgress progress = start(zero_bubble_h1(2, 3), 1);
  (void)take(progress, 0);
  (void)take(progress, 0);
  EXPECT_EQ(next_without(progress, {{kForward, 1, 1}, {kForward, 1, 2}}),
            (Action{kBackwardWeight, 1, 0}));
}

TEST(NextAction, NoForwardGoesBeyondTheActivationsOfTheSchedule) {
  // Rank 0: 0F0,0F1,0B0,0F2,...
  ScheduleProgress progress = start(one_f_one_b(2, 3), 0);
  (void)take(progress, 0);
  (void)take(progress, 0);
  EXPECT_EQ(next_without(progress, {{kBackward, 0, 0}}), std::nullopt);
  progress.max_activations = 3;
  EXPECT_EQ(next_without(progress, {{kBackward, 0, 0}}), (Action{kForward, 0, 2}));
}

TEST(NextAction, ChunksDoNotOvertakeEachOtherInAStage) {
  ScheduleProgress progress = start(fill_drain(2, 3), 0);
  EXPECT_EQ(next_without(progress, {{kForward, 0, 0}}), std::nullopt);
  for (int chunk = 0; chunk < 3; ++chunk) {
    (void)take(progress, 0);
  }
  EXPECT_EQ(next_without(progress, {{kBackward, 0, 0}}), std::nullopt);
}

// An early forward of the first stage would use the memory for the last stage's forward, whose
// backward all other stages need.
TEST(NextAction, MemoryIsKeptForThoseWhoAreOvertaken) {
  const Schedule schedule{.n_chunks = 2,
                          .rank_of_stage = {0, 0},
                          .orders = {{{kForward, 0, 0},
                                      {kForward, 1, 0},
                                      {kBackward, 1, 0},
                                      {kBackward, 0, 0},
                                      {kForward, 0, 1},
                                      {kForward, 1, 1},
                                      {kBackward, 1, 1},
                                      {kBackward, 0, 1}}}};
  ScheduleProgress progress = start(schedule, 0);
  (void)take(progress, 0);
  EXPECT_EQ(progress.max_activations, 2);
  const std::set<Action> late{{kForward, 1, 0}, {kBackward, 0, 0}};
  EXPECT_EQ(next_without(progress, late), std::nullopt);
  progress.max_activations = 3;
  EXPECT_EQ(next_without(progress, late), (Action{kForward, 0, 1}));
}

// Simulates ranks whose messages arrive in random order.
class RandomNetwork {
 public:
  RandomNetwork(const Schedule& schedule, unsigned seed) : schedule_(schedule), random_(seed) {
    for (int rank = 0; rank < schedule.n_ranks(); ++rank) {
      ranks_.push_back(start(schedule, rank));
    }
  }

  // Returns true if all ranks finish.
  bool run() {
    while (true) {
      std::vector<int> able;
      for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
        if (next_of(rank)) {
          able.push_back(rank);
        }
      }
      if (able.empty() && on_the_way_.empty()) {
        break;
      }
      if (able.empty() || (!on_the_way_.empty() && random_() % 3 == 0)) {
        const std::size_t message = random_() % on_the_way_.size();
        arrived_.insert(on_the_way_[message]);
        on_the_way_.erase(on_the_way_.begin() + static_cast<std::ptrdiff_t>(message));
        continue;
      }
      act(able[random_() % able.size()]);
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const ScheduleProgress& progress) {
      return progress.remaining.empty();
    });
  }

  [[nodiscard]] int most_activations(int rank) const { return peaks_.at(rank); }

  // The actions of each stage without the input gradients, which may come in any order.
  [[nodiscard]] const std::map<int, std::vector<Action>>& of_stages() const { return of_stages_; }

 private:
  // An output, or a gradient, of a stage for another stage.
  struct Message {
    bool is_forward;
    int from;
    int to;
    int chunk;

    friend auto operator<=>(const Message&, const Message&) = default;
  };

  [[nodiscard]] std::optional<std::size_t> next_of(int rank) const {
    return next_action(ranks_[as_index(rank)], [&](const Action& action) {
      const auto stages = input_stages(action, schedule_.n_stages());
      return std::all_of(stages.begin(), stages.end(), [&](int stage) {
        return arrived_.contains({action.kind == kForward, stage, action.stage, action.chunk});
      });
    });
  }

  void act(int rank) {
    ScheduleProgress& progress = ranks_[as_index(rank)];
    const Action action = take(progress, next_of(rank).value());
    peaks_[rank] = std::max(peaks_[rank], progress.n_activations);
    if (action.kind != kBackwardInput) {
      of_stages_[action.stage].push_back(action);
    }
    const int to = action.stage + (action.kind == kForward ? 1 : -1);
    if (action.kind == kBackwardWeight || to < 0 || to == schedule_.n_stages()) {
      return;
    }
    const Message message{action.kind == kForward, action.stage, to, action.chunk};
    if (schedule_.rank_of_stage[as_index(to)] == rank) {
      arrived_.insert(message);
    } else {
      on_the_way_.push_back(message);
    }
  }

  const Schedule& schedule_;
  std::mt19937 random_;
  std::vector<ScheduleProgress> ranks_;
  std::vector<Message> on_the_way_;
  std::set<Message> arrived_;
  std::map<int, int> peaks_;
  std::map<int, std::vector<Action>> of_stages_;
};

class AnyArrival : public ::testing::TestWithParam<int> {};

TEST_P(AnyArrival, EndsWithinTheActivationsOfTheSchedule) {
  for (const KnownSchedule& known : known_schedules()) {
    for (const int n_chunks : {1, 3, 7, 16}) {
      const Schedule schedule =
          known.make({.n_ranks = GetParam(), .n_chunks = n_chunks, .stages_per_rank = 2});
      for (unsigned seed = 0; seed < 4; ++seed) {
        RandomNetwork network(schedule, seed);
        ASSERT_TRUE(network.run()) << known.name << ", " << n_chunks << " chunks, seed " << seed;
        for (int rank = 0; rank < schedule.n_ranks(); ++rank) {
          EXPECT_LE(network.most_activations(rank), peak_activations(schedule, rank));
        }
        for (const auto& [stage, actions] : network.of_stages()) {
          std::map<ActionKind, int> next;
          for (const Action& action : actions) {
            const ActionKind kind = action.kind == kForward ? kForward : kBackward;
            ASSERT_EQ(action.chunk, next[kind]++) << known.name << ": " << describe(action);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AnyArrival, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(ByArrival, LateMessagesCostLess) {
  const Schedule schedule = zero_bubble_h1(4, 8);
  const auto one = [](const Action&) { return 1.0; };
  EXPECT_EQ(step_time(simulate(schedule, one, {.transfer = 1.5})), 49);
  EXPECT_EQ(step_time(simulate(schedule, one, {.transfer = 1.5, .is_by_arrival = true})), 46);
}

// The average over many steps: a single step may be slower if an early action blocks a more urgent
// action. 1F1B has no room for gains.
TEST(ByArrival, StagesOfChangingSpeedCostHardlyMoreOrLess) {
  for (const KnownSchedule& known : known_schedules()) {
    const Schedule schedule = known.make({.n_ranks = 4, .n_chunks = 8, .stages_per_rank = 2});
    double planned = 0;
    double by_arrival = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
      std::mt19937 random(seed);
      std::map<Action, double> times;
      const auto time = [&](const Action& action) {
        return times.try_emplace(action, 1 + static_cast<double>(random() % 10)).first->second;
      };
      planned += step_time(simulate(schedule, time, {.transfer = 2}));
      by_arrival += step_time(simulate(schedule, time, {.transfer = 2, .is_by_arrival = true}));
    }
    EXPECT_LE(by_arrival, planned * 1.01) << known.name;
    if (std::string(known.name).starts_with("v_")) {
      EXPECT_LE(by_arrival, planned * 0.97) << known.name;
    }
  }
}

}  // namespace
}  // namespace unisono::pipeline
