#include "unisono/pipeline/render.h"

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

// As a clock may show it.
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
}  // namespace unisono::pipeline
