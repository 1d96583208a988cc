#include "unisono/torch/round.h"

#include <cstddef>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// Parameters 0 and 1 in bucket 1, parameters 2 and 3 in bucket 0.
Round make_round() {
  return {{1, 1, 0, 0}, 2};
}

TEST(Round, BucketsAreTakenInOrderOfTheirNumbersOnceTheyAreFull) {
  Round round = make_round();
  round.mark_ready(0);
  round.mark_ready(1);
  EXPECT_EQ(round.take_full_bucket(), std::nullopt) << "bucket 1 must wait for bucket 0";
  round.mark_ready(3);
  EXPECT_EQ(round.take_full_bucket(), std::nullopt);
  round.mark_ready(2);
  EXPECT_THAT(round.take_full_bucket(), Optional(0U));
  EXPECT_TRUE(round.is_taken(2));
  EXPECT_FALSE(round.is_taken(0));
  EXPECT_THAT(round.take_full_bucket(), Optional(1U));
  EXPECT_EQ(round.take_full_bucket(), std::nullopt);
}

TEST(Round, TheRestCanBeTakenUnfilled) {
  Round round = make_round();
  round.mark_ready(2);
  EXPECT_THAT(round.find_missing(), ElementsAre(0, 1, 3));
  EXPECT_THAT(round.take_bucket(), Optional(0U));
  EXPECT_THAT(round.take_bucket(), Optional(1U));
  EXPECT_EQ(round.take_bucket(), std::nullopt);
}

TEST(Round, OrderIsThatOfTheGradientsWithAbsentOnesLast) {
  Round round = make_round();
  round.mark_absent(2);
  round.mark_ready(3);
  round.mark_ready(0);
  EXPECT_TRUE(round.is_absent(2));
  EXPECT_TRUE(round.is_ready(2));
  EXPECT_THAT(round.order(), ElementsAre(3, 0, 1, 2));
}

TEST(Round, AGradientIsReadyOnce) {
  Round round = make_round();
  round.mark_ready(1);
  EXPECT_THROW(round.mark_ready(1), Error);
  EXPECT_THROW(round.mark_absent(1), Error);
}

}  // namespace
}  // namespace unisono::ddp
