#include "unisono/pipeline/inputs.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using enum ActionKind;

TEST(InputStages, AreTheNeighbours) {
  EXPECT_THAT(input_stages({kForward, 0, 0}, 3), IsEmpty());
  EXPECT_THAT(input_stages({kForward, 2, 0}, 3), ElementsAre(1));
  EXPECT_THAT(input_stages({kBackward, 2, 0}, 3), IsEmpty());
  EXPECT_THAT(input_stages({kBackwardInput, 1, 0}, 3), ElementsAre(2));
  EXPECT_THAT(input_stages({kBackwardWeight, 1, 0}, 3), IsEmpty());
}

TEST(InputStages, AreThoseOfSkipConnectionsToo) {
  const std::vector<Skip> skips{{.from = 0, .to = 2}, {.from = 0, .to = 3}, {.from = 1, .to = 3}};
  EXPECT_THAT(input_stages({kForward, 3, 0}, 4, skips), UnorderedElementsAre(2, 0, 1));
  EXPECT_THAT(input_stages({kBackward, 0, 0}, 4, skips), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(input_stages({kBackwardInput, 1, 0}, 4, skips), UnorderedElementsAre(2, 3));
  EXPECT_THAT(input_stages({kForward, 1, 0}, 4, skips), ElementsAre(0));
}

}  // namespace
}  // namespace unisono::pipeline
