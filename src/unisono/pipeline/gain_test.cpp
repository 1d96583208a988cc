#include "unisono/pipeline/gain.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Timeline step_of(const Schedule& schedule,
                 const std::vector<StageTimes>& stages,
                 double transfer = 0) {
  return simulate(schedule, time_of(stages), {.transfer = transfer});
}

TEST(Gain, StagesThatAreAlikeAndManyChunksWin) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}), {.n_devices = 2});
  EXPECT_EQ(gain.serial, 48);
  EXPECT_EQ(gain.step, 27);
  EXPECT_EQ(gain.ideal, 27);
  EXPECT_DOUBLE_EQ(gain.bubble, 1.0 / 9);
  EXPECT_DOUBLE_EQ(gain.factor(), 48.0 / 27);
  EXPECT_THAT(gain.reasons, IsEmpty());
  EXPECT_THAT(
      describe(gain, "ms"),
      HasSubstr("1.78 times as fast\nplanned by the stages' times 27.000 ms: off by +0.0 %\n"
                "Pipelining wins"));
}

TEST(Gain, SaysHowFarTheStepIsOffItsPlan) {
  const Schedule schedule = one_f_one_b(2, 8);
  Timeline late = step_of(schedule, {{1, 1, 1}, {1, 1, 1}});
  for (Span& span : late.ranks[0]) {
    span.start += 2.7;
    span.end += 2.7;
  }
  late.ranks[0].front().start = 0;
  late.ranks[0].front().end = 1;
  const Gain gain = gain_of(schedule, late, {.n_devices = 2});
  EXPECT_DOUBLE_EQ(gain.planned, 27);
  EXPECT_DOUBLE_EQ(gain.step, 29.7);
  EXPECT_THAT(describe(gain, "ms"),
              HasSubstr("planned by the stages' times 27.000 ms: off by +10.0 %"));
}

TEST(Gain, TheTableHasTheMeanOfTheChunksInEachStage) {
  const Schedule schedule = one_f_one_b(2, 4);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {2, 3, 4}}), {.n_devices = 2});
  ASSERT_EQ(gain.stages.size(), 2U);
  EXPECT_DOUBLE_EQ(gain.stages[1].forward, 2);
  EXPECT_DOUBLE_EQ(gain.stages[1].backward, 7);
  EXPECT_DOUBLE_EQ(gain.stages[1].share, 0.75);
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("    1     1       2.000        7.000    75.0\n"));
}

TEST(Gain, RanksThatShareACoreCantWin) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 0.5), {.n_devices = 1});
  EXPECT_EQ(gain.ideal, 48);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("2 ranks share 1 core")));
}

TEST(Gain, OneChunkCantWin) {
  const Schedule schedule = fill_drain(2, 1);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}), {.n_devices = 2});
  EXPECT_EQ(gain.factor(), 1);
  EXPECT_THAT(gain.reasons, ElementsAre(HasSubstr("With one chunk")));
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("Pipelining can't win here"));
}

TEST(Gain, AnUnequalCutIsNamedWithItsRank) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {3, 3, 3}}), {.n_devices = 2});
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("Rank 1 has 75 % of the work")));
}

TEST(Gain, MessagesThatTakeLongAreWaitedFor) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 4), {.n_devices = 2});
  EXPECT_EQ(gain.ideal, 27);
  EXPECT_GT(gain.bubble, gain.ideal_bubble);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("is waiting for messages")));
}

TEST(Gain, ChunksThatMakeComputingLongerMayCostAllThatIsWon) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Timeline step = step_of(schedule, {{1, 1, 1}, {1, 1, 1}});
  const Gain gain = gain_of(schedule, step, {.n_devices = 2, .whole_batch = 24});
  EXPECT_LT(gain.best_factor(), 1);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("2.00 times as long as the whole batch")));
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("can't win here"));
}

TEST(Gain, WhatCouldWinSaysSo) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 40), {.n_devices = 2});
  EXPECT_LT(gain.factor(), 1);
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("does not win here, but can"));
}

TEST(Gain, StepsOfAnotherScheduleAreRefused) {
  const Timeline step = step_of(one_f_one_b(2, 4), {{1, 1, 1}, {1, 1, 1}});
  const auto refused = [&](const Schedule& schedule, int n_devices) -> std::string {
    try {
      (void)gain_of(schedule, step, {.n_devices = n_devices});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(one_f_one_b(2, 5), 2), HasSubstr("16 of the schedule's 20 actions"));
  EXPECT_THAT(refused(one_f_one_b(2, 3), 2),
              HasSubstr("no forward of chunk 3 in stage 0 on rank 0"));
  EXPECT_THAT(refused(one_f_one_b(1, 4), 2), HasSubstr("on rank 1"));
  EXPECT_THAT(refused(one_f_one_b(2, 4), 0), HasSubstr("0 devices"));
}

}  // namespace
}  // namespace unisono::pipeline
