#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;

constexpr int kMaxChunks = 64;
// Small numbers, multiples of the number of ranks, and other numbers.
constexpr int kSomeChunks[] = {1, 2, 3, 5, 8, 12, 16, 31, 32, 48, 64};

std::vector<std::pair<std::string, Schedule>> all_schedules(int n_ranks, int n_chunks) {
  std::vector<std::pair<std::string, Schedule>> schedules;
  for (const KnownSchedule& known : known_schedules()) {
    const int most = known.stages_per_rank == 0 ? 4 : known.stages_per_rank;
    const int least = known.stages_per_rank == 0 ? 1 : known.stages_per_rank;
    for (int stages = least; stages <= most; ++stages) {
      schedules.emplace_back(
          std::string(known.name) + ", " + std::to_string(n_ranks) + " ranks with " +
              std::to_string(stages) + " stages, " + std::to_string(n_chunks) + " chunks",
          known.make({.n_ranks = n_ranks, .n_chunks = n_chunks, .stages_per_rank = stages}));
    }
  }
  return schedules;
}

int largest_peak(const Schedule& schedule) {
  int peak = 0;
  for (int rank = 0; rank < schedule.n_ranks(); ++rank) {
    peak = std::max(peak, peak_activations(schedule, rank));
  }
  return peak;
}

class Generators : public ::testing::TestWithParam<int> {};

TEST_P(Generators, NoScheduleStandsStillAtAnySpeed) {
  for (int n_chunks = 1; n_chunks <= kMaxChunks; ++n_chunks) {
    for (const auto& [name, schedule] : all_schedules(GetParam(), n_chunks)) {
      EXPECT_NO_THROW(validate(schedule, name));
      EXPECT_EQ(schedule.n_chunks, n_chunks) << name;
      EXPECT_EQ(schedule.n_ranks(), GetParam()) << name;
    }
  }
}

TEST_P(Generators, EachStageAddsGradientsUpInTheOrderOfTheChunks) {
  for (const int n_chunks : kSomeChunks) {
    for (const auto& [name, schedule] : all_schedules(GetParam(), n_chunks)) {
      // Next chunk by stage and direction (true for forward).
      std::map<std::pair<int, bool>, int> next;
      for (const auto& order : schedule.orders) {
        for (const Action& action : order) {
          if (action.kind != ActionKind::kBackwardInput) {
            const bool is_forward = action.kind == ActionKind::kForward;
            ASSERT_EQ(action.chunk, (next[{action.stage, is_forward}]++))
                << name << ": " << describe(action);
          }
        }
      }
    }
  }
}

TEST_P(Generators, ActivationsAreThoseOfThePapers) {
  const int p = GetParam();
  for (int m = 1; m <= kMaxChunks; ++m) {
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(peak_activations(fill_drain(p, m), rank), m);
      EXPECT_EQ(peak_activations(one_f_one_b(p, m), rank), std::min(m, p - rank));
      EXPECT_EQ(peak_activations(zero_bubble_h1(p, m), rank), std::min(m, p));
      if (m % p == 0) {
        for (const int v : {2, 3}) {
          EXPECT_EQ(peak_activations(interleaved(p, m, v), rank),
                    std::min(v * m, (v - 1) * p + 2 * (p - 1 - rank) + 1));
        }
      }
    }
    // The last three bounds are those of 1F1B, which has 2 p by this count, in parts.
    const std::pair<Schedule, int> bounds[] = {
        {v_schedule(p, m, VMemory::kMin), 2 + 2 * ((p - 1 + 2) / 3)},
        {v_schedule(p, m, VMemory::kHalf), p % 2 == 0 ? p + 2 : p + 1},
        {v_schedule(p, m, VMemory::kFull), 2 * p},
        {dual_pipe_v(p, m), 2 * p + 1}};
    for (const auto& [schedule, bound] : bounds) {
      EXPECT_LE(largest_peak(schedule), bound) << m << " chunks";
      if (m >= 2 * p) {
        EXPECT_EQ(largest_peak(schedule), bound) << m << " chunks";
      }
    }
  }
}

TEST_P(Generators, IdleTimeIsThatOfTheFormula) {
  const StageTimes some_times[] = {
      {1, 1, 1}, {2, 1, 1}, {3, 2, 1}, {1, 2, 1}, {1, 1, 3}, {4, 3, 2}};
  int n_compared = 0;
  for (const int n_chunks : kSomeChunks) {
    for (const KnownSchedule& known : known_schedules()) {
      const int stages_per_rank = known.stages_per_rank == 0 ? 3 : known.stages_per_rank;
      const Setting setting{
          .n_ranks = GetParam(), .n_chunks = n_chunks, .stages_per_rank = stages_per_rank};
      const Schedule schedule = known.make(setting);
      for (const StageTimes& times : some_times) {
        const std::optional<IdleTime> idle = known.idle_time(setting, times);
        if (!idle) {
          continue;
        }
        const Timeline timeline = simulate(
            schedule, time_of(std::vector<StageTimes>(as_index(schedule.n_stages()), times)));
        const double simulated = step_time(timeline) - times.sum() * n_chunks * stages_per_rank;
        const std::string where = std::string(known.name) + ", " + std::to_string(n_chunks) +
                                  " chunks, times " + std::to_string(times.forward) + ", " +
                                  std::to_string(times.backward_input) + ", " +
                                  std::to_string(times.backward_weight);
        if (idle->is_upper_bound) {
          EXPECT_LE(simulated, idle->time) << where;
        } else {
          EXPECT_NEAR(simulated, idle->time, 1e-9) << where;
        }
        EXPECT_NEAR(bubble(timeline), simulated / step_time(timeline), 1e-9) << where;
        ++n_compared;
      }
    }
  }
  EXPECT_GT(n_compared, 100);
}

// Checks that the inputs of every action are finished before its start.
void expect_dependencies(const Schedule& schedule,
                         const Timeline& timeline,
                         const SimulationOptions& options,
                         const std::string& name) {
  std::map<Action, double> ends;
  for (const auto& spans : timeline.ranks) {
    for (const Span& span : spans) {
      ends[span.action] = span.end;
      if (span.action.kind == ActionKind::kBackward) {
        ends[{ActionKind::kBackwardInput, span.action.stage, span.action.chunk}] = span.end;
      }
    }
  }
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double idle_from = 0;
    ASSERT_EQ(timeline.ranks[rank].size(), schedule.orders[rank].size()) << name;
    for (const Span& span : timeline.ranks[rank]) {
      ASSERT_GE(span.start, idle_from) << name;
      idle_from = span.end;
      Action input = span.action;
      if (input.kind != ActionKind::kForward) {
        ASSERT_GE(span.start, (ends.at({ActionKind::kForward, input.stage, input.chunk}))) << name;
        input.kind = ActionKind::kBackwardInput;
      }
      for (const int stage : input_stages(span.action, schedule.n_stages(), options.skips)) {
        input.stage = stage;
        const bool is_sent = schedule.rank_of_stage[as_index(stage)] != static_cast<int>(rank);
        ASSERT_GE(span.start, ends.at(input) + (is_sent ? options.transfer : 0))
            << name << ": " << describe(span.action);
      }
    }
  }
}

TEST_P(Generators, RanksOfAnySpeedComeToTheEnd) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::exponential_distribution<double> draw;
  for (const int n_chunks : {1, 3, 8, 21}) {
    for (const auto& [name, schedule] : all_schedules(GetParam(), n_chunks)) {
      std::map<Action, double> times;
      const auto time = [&](const Action& action) {
        return times.try_emplace(action, draw(random)).first->second;
      };
      SimulationOptions options{.transfer = draw(random)};
      for (int skip = 0; skip < 3 && schedule.n_stages() > 1; ++skip) {
        const int from = static_cast<int>(random() % as_index(schedule.n_stages() - 1));
        const int distance = static_cast<int>(random() % as_index(schedule.n_stages() - 1 - from));
        options.skips.push_back({.from = from, .to = from + 1 + distance});
      }
      for (const bool is_by_arrival : {false, true}) {
        options.is_by_arrival = is_by_arrival;
        const Timeline timeline = simulate(schedule, time, options);
        expect_dependencies(schedule, timeline, options, name);
        for (int rank = 0; rank < schedule.n_ranks(); ++rank) {
          EXPECT_LE(peak_activations(timeline, rank), peak_activations(schedule, rank)) << name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Generators, ::testing::Range(1, 17));

TEST(GeneratedOrders, AreTheseForAFewChunks) {
  EXPECT_EQ(to_csv(fill_drain(2, 2)), "0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  EXPECT_EQ(to_csv(one_f_one_b(2, 3)), "0F0,0F1,0B0,0F2,0B1,0B2\r\n1F0,1B0,1F1,1B1,1F2,1B2\r\n");
  EXPECT_EQ(to_csv(interleaved(2, 2, 2)),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\r\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\r\n");
  EXPECT_EQ(to_csv(zero_bubble_h1(2, 3)),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\r\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\r\n");
}

TEST(GeneratedOrders, TheLastRankOfAVHasTheMiddleOfTheModel) {
  for (const Schedule& schedule : {v_schedule(3, 6, VMemory::kHalf), dual_pipe_v(3, 6)}) {
    EXPECT_THAT(schedule.rank_of_stage, ::testing::ElementsAre(0, 1, 2, 2, 1, 0));
  }
}

TEST(GeneratedOrders, NumbersBelowOneAreRefused) {
  for (const KnownSchedule& known : known_schedules()) {
    EXPECT_THAT([&] { (void)known.make({.n_ranks = 0, .n_chunks = 4, .stages_per_rank = 1}); },
                throws_error(ErrorCode::kInvalidArgument, "0 ranks: at least 1"))
        << known.name;
    EXPECT_THAT([&] { (void)known.make({.n_ranks = 2, .n_chunks = 0, .stages_per_rank = 1}); },
                throws_error(ErrorCode::kInvalidArgument, "0 chunks: at least 1"))
        << known.name;
  }
  EXPECT_THAT([] { (void)interleaved(2, 2, 0); },
              throws_error(ErrorCode::kInvalidArgument, "0 stages per rank"));
}

TEST(KnownSchedules, AreFoundByName) {
  for (const KnownSchedule& known : known_schedules()) {
    EXPECT_EQ(find_schedule(known.name).make, known.make);
  }
  EXPECT_THAT([] { (void)find_schedule("gpip"); },
              throws_error(ErrorCode::kInvalidArgument, "\"gpip\"", "fill_drain, 1f1b"));
}

TEST(KnownSchedules, HavePyTorchsNamesToo) {
  for (const auto& [torchs_name, name] : {std::pair("GPipe", "fill_drain"),
                                          std::pair("gpipe", "fill_drain"),
                                          std::pair("1F1B", "1f1b"),
                                          std::pair("Interleaved1F1B", "interleaved_1f1b"),
                                          std::pair("ScheduleInterleaved1F1B", "interleaved_1f1b"),
                                          std::pair("ZBVZeroBubble", "v_zb"),
                                          std::pair("DualPipeV", "dual_pipe_v")}) {
    EXPECT_STREQ(find_schedule(torchs_name).name, name);
  }
  EXPECT_THAT([] { (void)find_schedule("InterleavedZeroBubble"); },
              throws_error(ErrorCode::kInvalidArgument, "the nearest one is zb_h1"));
  EXPECT_THAT([] { (void)find_schedule("LoopedBFS"); },
              throws_error(ErrorCode::kInvalidArgument, "the nearest one is fill_drain"));
  EXPECT_THAT([] { (void)find_schedule("Schedule"); },
              throws_error(ErrorCode::kInvalidArgument, "no schedule \"Schedule\""));
}

}  // namespace
}  // namespace unisono::pipeline
