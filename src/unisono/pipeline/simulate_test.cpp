#include "unisono/pipeline/simulate.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/pipeline/generators.h"

namespace unisono::pipeline {
namespace {

using ::testing::ElementsAre;

std::vector<double> starts_of(const std::vector<Span>& spans) {
  std::vector<double> starts;
  for (const Span& span : spans) {
    starts.push_back(span.start);
  }
  return starts;
}

TEST(Simulate, AnActionBeginsWhenItsInputsAndItsRankAreThere) {
  const StageTimes times{.forward = 1, .backward_input = 1, .backward_weight = 1};
  const Timeline timeline = simulate(one_f_one_b(2, 2), time_of({times, times}));
  // 0F0,0F1,0B0,0B1 and 1F0,1B0,1F1,1B1
  EXPECT_THAT(starts_of(timeline.ranks[0]), ElementsAre(0, 1, 4, 7));
  EXPECT_THAT(starts_of(timeline.ranks[1]), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(step_time(timeline), 9);
}

TEST(Simulate, StagesHaveTimesOfTheirOwn) {
  const Timeline timeline = simulate(zero_bubble_h1(2, 1), time_of({{3, 2, 1}, {1, 5, 7}}));
  // 0F0,0I0,0W0 and 1F0,1I0,1W0
  EXPECT_THAT(starts_of(timeline.ranks[0]), ElementsAre(0, 9, 11));
  EXPECT_THAT(starts_of(timeline.ranks[1]), ElementsAre(3, 4, 9));
  EXPECT_EQ(step_time(timeline), 16);
}

TEST(Simulate, TransfersTakeTimeBetweenRanksOnly) {
  const StageTimes times{.forward = 1, .backward_input = 1, .backward_weight = 1};
  const std::vector<StageTimes> stages(4, times);
  // Down to rank 1, where two stages follow each other, and up; the same backward.
  const Timeline timeline = simulate(dual_pipe_v(2, 1), time_of(stages), {.transfer = 10});
  EXPECT_THAT(starts_of(timeline.ranks[0]).front(), 0);
  EXPECT_EQ(starts_of(timeline.ranks[1])[0], 11);
  EXPECT_EQ(starts_of(timeline.ranks[1])[1], 12);
  EXPECT_EQ(starts_of(timeline.ranks[0])[1], 23);
}

TEST(Simulate, SkipConnectionsAreWaitedFor) {
  const StageTimes times{.forward = 1, .backward_input = 1, .backward_weight = 1};
  const std::vector<StageTimes> stages(3, times);
  // Of a transfer time between all ranks, an output that skips a stage is there before the one
  // that does not: nothing changes.
  const TimeOf time = time_of(stages);
  const Timeline plain = simulate(fill_drain(3, 2), time, {.transfer = 1});
  const Timeline skipping =
      simulate(fill_drain(3, 2), time, {.transfer = 1, .skips = {{.from = 0, .to = 2}}});
  EXPECT_EQ(step_time(plain), step_time(skipping));
  // On one rank the middle stages take no transfer, and the output of the first has to come.
  const Schedule schedule{.n_chunks = 1,
                          .rank_of_stage = {0, 1, 1},
                          .orders = {{{ActionKind::kForward, 0, 0}, {ActionKind::kBackward, 0, 0}},
                                     {{ActionKind::kForward, 1, 0},
                                      {ActionKind::kForward, 2, 0},
                                      {ActionKind::kBackward, 2, 0},
                                      {ActionKind::kBackward, 1, 0}}}};
  EXPECT_EQ(step_time(simulate(schedule, time, {.transfer = 4, .skips = {{.from = 0, .to = 2}}})),
            step_time(simulate(schedule, time, {.transfer = 4})));
}

}  // namespace
}  // namespace unisono::pipeline
