#include "unisono/pipeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::pipeline {
namespace {

using enum ActionKind;

// As it may be measured: the clock does not begin at 0.
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

}  // namespace
}  // namespace unisono::pipeline
