#include "unisono/report/step_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int64_t kMebibyte = 1 << 20;

StepTimer::Time at(int ms) {
  return StepTimer::Time() + milliseconds(ms);
}

TEST(StepTimer, AddsUpThePassesOfAStep) {
  StepTimer timer;
  timer.begin(at(1000));
  timer.begin(at(2000));
  for (int pass = 0; pass < 2; ++pass) {
    timer.add_forward(milliseconds(10));
    timer.add_backward(milliseconds(20));
  }
  timer.add_exposed(milliseconds(5));
  timer.end_step(at(1100), 64);
  timer.end_step(at(1130), 128);
  const std::vector<StepTimes> steps = timer.last_steps();
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_DOUBLE_EQ(steps[0].step, 0.1);
  EXPECT_DOUBLE_EQ(steps[0].forward, 0.02);
  EXPECT_DOUBLE_EQ(steps[0].backward, 0.04);
  EXPECT_DOUBLE_EQ(steps[0].exposed, 0.005);
  EXPECT_DOUBLE_EQ(steps[1].step, 0.03);
  EXPECT_EQ(steps[1].forward, 0);
  EXPECT_EQ(timer.n_steps(), 2);
  EXPECT_DOUBLE_EQ(timer.last_step().step, 0.03);
  EXPECT_EQ(timer.n_bytes(), 128);
}

TEST(StepTimer, AStepThatCameToNothingIsNone) {
  StepTimer timer;
  timer.begin(at(0));
  timer.add_forward(milliseconds(10));
  timer.drop_step(at(50));
  timer.end_step(at(60), 0);
  ASSERT_THAT(timer.last_steps(), SizeIs(1));
  EXPECT_DOUBLE_EQ(timer.last_steps()[0].step, 0.01);
  EXPECT_EQ(timer.last_steps()[0].forward, 0);
}

TEST(StepTimer, KeepsTheLastStepsInTheirOrder) {
  StepTimer timer;
  timer.begin(at(0));
  constexpr int kSteps = 450;
  for (int i = 1; i <= kSteps; ++i) {
    timer.add_forward(milliseconds(i));
    timer.end_step(at(i), 0);
  }
  const std::vector<StepTimes> steps = timer.last_steps();
  ASSERT_THAT(steps, SizeIs(StepTimer::kMostKept));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_DOUBLE_EQ(steps[i].forward, 1e-3 * static_cast<double>(kSteps - 199 + i));
  }
}

// Steps of 20 ms. Rank 1 spends most of the time in forward, and the other ranks wait for rank 1.
// Communication takes 2 ms.
std::vector<std::vector<StepTimes>> with_slow_forward() {
  const StepTimes fast{.step = 0.020, .forward = 0.004, .backward = 0.005, .exposed = 0.010};
  const StepTimes slow{.step = 0.020, .forward = 0.012, .backward = 0.005, .exposed = 0.002};
  return {{fast, fast, fast}, {slow, slow, slow}, {fast, fast, fast}};
}

TEST(StepReport, TellsWaitingForTheSlowestFromCommunication) {
  const StepReport report = make_step_report(with_slow_forward(), {1, 2, 3});
  EXPECT_EQ(report.n_steps, 3U);
  EXPECT_EQ(report.slowest, std::optional(1));
  ASSERT_THAT(report.ranks, SizeIs(3));
  EXPECT_DOUBLE_EQ(report.ranks[0].communication, 0.002);
  EXPECT_DOUBLE_EQ(report.ranks[0].waiting, 0.008);
  EXPECT_DOUBLE_EQ(report.ranks[1].communication, 0.002);
  EXPECT_DOUBLE_EQ(report.ranks[1].waiting, 0);
  EXPECT_NEAR(report.ranks[0].other, 0.001, 1e-12);
  EXPECT_EQ(report.ranks[2].n_bytes, 3);
}

TEST(StepReport, TheTableNamesTheSlowestRankAndWhatItDoes) {
  const StepReport report =
      make_step_report(with_slow_forward(), {4 * kMebibyte, 4 * kMebibyte, 4 * kMebibyte});
  EXPECT_EQ(
      report.table(),
      "medians of 3 steps, in ms\n"
      " rank      step   forward  backward communication   waiting     other       MiB\n"
      "    0     20.00      4.00      5.00          2.00      8.00      1.00       4.0\n"
      "    1     20.00     12.00      5.00          2.00      0.00      1.00       4.0\n"
      "    2     20.00      4.00      5.00          2.00      8.00      1.00       4.0\n"
      "rank 1 is the slowest: others wait up to 8.00 ms (40%) of a step for it; forward takes "
      "it 12.00 ms, and others 4.00 ms\n");
  EXPECT_EQ(report.line(),
            "step 20.00 ms: forward 60%, backward 25%, communication 10%, other 5%; rank 1 is the "
            "slowest: others wait up to 8.00 ms (40%) of a step for it; forward takes it 12.00 ms, "
            "and others 4.00 ms");
}

TEST(StepReport, ARankThatReadsItsDataSlowlyIsNamedForThat) {
  const StepTimes fast{.step = 0.03, .forward = 0.005, .backward = 0.005, .exposed = 0.019};
  const StepTimes slow{.step = 0.03, .forward = 0.005, .backward = 0.005, .exposed = 0.001};
  EXPECT_THAT(make_step_report({{fast}, {slow}}, {0, 0}).table(),
              HasSubstr("the rest (data, loss, optimizer) takes it 19.00 ms, and others 1.00 ms"));
}

// The last rank changes from step to step: all ranks wait, but not for a particular rank.
TEST(StepReport, NobodyIsNamedWhereEachIsSlowAtTimes) {
  const StepTimes first{.step = 0.02, .forward = 0.01, .exposed = 0.01};
  const StepTimes last{.step = 0.02, .forward = 0.02, .exposed = 0};
  const StepReport report =
      make_step_report({{first, last, first, last}, {last, first, last, first}}, {0, 0});
  EXPECT_EQ(report.slowest, std::nullopt);
  EXPECT_THAT(report.table(), HasSubstr("no rank keeps the others waiting"));
}

TEST(StepReport, OneRankWaitsForNobody) {
  const StepReport report = make_step_report({{{.step = 0.02, .forward = 0.02}}}, {0});
  EXPECT_EQ(report.slowest, std::nullopt);
  EXPECT_THAT(report.table(), Not(HasSubstr("slowest")));
  EXPECT_EQ(report.line(), "step 20.00 ms: forward 100%, backward 0%, communication 0%, other 0%");
}

TEST(StepReport, WithoutStepsItSaysSo) {
  EXPECT_EQ(make_step_report({{}, {}}, {0, 0}).table(),
            "no step with communication has been made\n");
  EXPECT_EQ(make_step_report({{}, {{}}}, {0, 0}).line(),
            "no step with communication has been made");
  EXPECT_EQ(make_step_report({{{}}, {{}}}, {0, 0}).slowest, std::nullopt);
}

TEST(StepReport, EveryRankGetsAllRanksTimes) {
  test::run_ranks(test::one_node(3), [](ProcessGroup& group) {
    StepTimer timer;
    timer.begin(at(0));
    for (int step = 1; step <= 250; ++step) {
      timer.add_forward(milliseconds(1 + group.rank()));
      timer.add_exposed(milliseconds(5 - group.rank()));
      timer.end_step(at(10 * step), 100 + group.rank());
    }
    const StepReport report = gather_step_report(group, timer);
    EXPECT_EQ(report.n_steps, StepTimer::kMostKept);
    EXPECT_EQ(report.slowest, std::optional(2));
    ASSERT_THAT(report.ranks, SizeIs(3));
    for (int rank = 0; rank < 3; ++rank) {
      const RankStepReport& of_rank = report.ranks[static_cast<std::size_t>(rank)];
      EXPECT_DOUBLE_EQ(of_rank.forward, 1e-3 * (1 + rank));
      EXPECT_NEAR(of_rank.waiting, 1e-3 * (2 - rank), 1e-12);
      EXPECT_EQ(of_rank.n_bytes, 100 + rank);
    }
  });
}

}  // namespace
}  // namespace unisono
