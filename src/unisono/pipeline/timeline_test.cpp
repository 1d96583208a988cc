#include "unisono/pipeline/timeline.h"

#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/pipeline/known_schedules.h"

namespace unisono::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using enum ActionKind;

// A measured timeline: the clock does not begin at 0.
Timeline measured() {
  return {.ranks = {{{{kForward, 0, 0}, 100, 101},
                     {{kForward, 0, 1}, 101, 102},
                     {{kBackward, 0, 0}, 106, 108},
                     {{kBackward, 0, 1}, 108, 110}},
                    {{{kForward, 1, 0}, 101, 102},
                     {{kBackwardInput, 1, 0}, 102, 103},
                     {{kForward, 1, 1}, 103, 104},
                     {{kBackwardInput, 1, 1}, 104, 105},
                     {{kBackwardWeight, 1, 0}, 105, 106},
                     {{kBackwardWeight, 1, 1}, 106, 107}}}};
}

TEST(Timeline, TheStepIsFromTheFirstStartToTheLastEnd) {
  EXPECT_EQ(start_time(measured()), 100);
  EXPECT_EQ(step_time(measured()), 10);
  EXPECT_EQ(step_time({}), 0);
}

TEST(Timeline, TheBubbleIsWhereRanksDoNotCompute) {
  EXPECT_EQ(busy_time(measured(), 0), 6);
  EXPECT_DOUBLE_EQ(bubble(measured(), 0), 0.4);
  EXPECT_DOUBLE_EQ(bubble(measured(), 1), 0.4);
  EXPECT_DOUBLE_EQ(bubble(measured()), 0.4);
  EXPECT_EQ(bubble(Timeline{}), 0);
}

TEST(Timeline, ActivationsLiveUntilTheWeightGradientsAreDone) {
  EXPECT_EQ(peak_activations(measured(), 0), 2);
  EXPECT_EQ(peak_activations(measured(), 1), 2);
  EXPECT_EQ(peak_activations(measured(), 1, {1, 2.5}), 5);
}

Timeline of_equal_stages(const Schedule& schedule, const StageTimes& times) {
  return simulate(
      schedule,
      time_of(std::vector<StageTimes>(static_cast<std::size_t>(schedule.n_stages()), times)));
}

TEST(RenderText, ALineIsARank) {
  EXPECT_THAT(render_text(of_equal_stages(one_f_one_b(2, 2), {1, 1, 1})),
              StartsWith("rank 0 |F0 F1 ......B0    ...B1    |\n"
                         "rank 1 |...F0 B0    F1 B1    ......|\n"
                         "F forward, "));
}

TEST(RenderText, OtherStagesAreInLowerCase) {
  EXPECT_THAT(render_text(of_equal_stages(v_schedule(2, 1, VMemory::kHalf), {1, 1, 1})),
              StartsWith("rank 0 |F0 ......f0 i0 w0 ...I0 W0 |\n"
                         "rank 1 |...F0 f0 ......i0 I0 w0 W0 |\n"));
}

TEST(RenderText, NarrowPicturesLeaveNumbersOut) {
  EXPECT_THAT(render_text(of_equal_stages(one_f_one_b(2, 2), {1, 1, 1}), 9),
              StartsWith("rank 0 |FF..B0.B1|\n"
                         "rank 1 |.FB0FB1..|\n"));
}

// Returns this timeline on a clock that starts at 1024.
Timeline later(Timeline timeline) {
  for (auto& spans : timeline.ranks) {
    for (Span& span : spans) {
      span.start += 1024;
      span.end += 1024;
    }
  }
  return timeline;
}

TEST(RenderText, AMeasuredStepNeedNotBeginAtZero) {
  const Timeline timeline = of_equal_stages(fill_drain(3, 4), {1, 2, 1});
  EXPECT_EQ(render_text(later(timeline)), render_text(timeline));
}

TEST(RenderText, OfNothingIsNoLine) {
  EXPECT_THAT(render_text({}), StartsWith("F forward"));
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

TEST(RenderSvg, HasAllActionsWithTheirTimes) {
  const std::string svg = render_svg(of_equal_stages(zero_bubble_h1(3, 4), {1, 1, 1}), "ms");
  EXPECT_THAT(svg, StartsWith("<svg xmlns="));
  EXPECT_EQ(count(svg, "<title>"), 3U * 4 * 3);
  EXPECT_EQ(count(svg, "<title>"), count(svg, "</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>forward of chunk 0 in stage 1: 1 to 2</title>"));
  EXPECT_THAT(svg, HasSubstr("rank 2</text>"));
  EXPECT_THAT(svg, HasSubstr(" ms</text>"));
}

TEST(RenderSvg, AMeasuredStepNeedNotBeginAtZero) {
  const Timeline timeline = of_equal_stages(fill_drain(3, 4), {1, 2, 1});
  const std::regex titles("<title>[^<]*</title>");
  EXPECT_EQ(std::regex_replace(render_svg(later(timeline), "ms"), titles, ""),
            std::regex_replace(render_svg(timeline, "ms"), titles, ""));
}

TEST(RenderSvg, OfNothingIsEmpty) {
  EXPECT_EQ(count(render_svg({}, "ms"), "<title>"), 0U);
}

}  // namespace

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
  // Down to rank 1, where two stages follow each other, and back up. Backward takes the same path.
  const Timeline timeline = simulate(dual_pipe_v(2, 1), time_of(stages), {.transfer = 10});
  EXPECT_THAT(starts_of(timeline.ranks[0]).front(), 0);
  EXPECT_EQ(starts_of(timeline.ranks[1])[0], 11);
  EXPECT_EQ(starts_of(timeline.ranks[1])[1], 12);
  EXPECT_EQ(starts_of(timeline.ranks[0])[1], 23);
}

TEST(Simulate, SkipConnectionsAreWaitedFor) {
  const StageTimes times{.forward = 1, .backward_input = 1, .backward_weight = 1};
  const std::vector<StageTimes> stages(3, times);
  // With equal transfer times a message that skips a stage arrives before the message of that
  // stage, so the step does not change.
  const TimeOf time = time_of(stages);
  const Timeline plain = simulate(fill_drain(3, 2), time, {.transfer = 1});
  const Timeline skipping =
      simulate(fill_drain(3, 2), time, {.transfer = 1, .skips = {{.from = 0, .to = 2}}});
  EXPECT_EQ(step_time(plain), step_time(skipping));
  // On one rank the middle stages need no transfer, but the output of stage 0 does.
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
