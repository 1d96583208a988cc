#include "unisono/torch/ddp/pass_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// Parameters 0 and 1 in bucket 1, parameters 2 and 3 in bucket 0.
PassProgress make_progress() {
  return {{1, 1, 0, 0}, 2};
}

TEST(PassProgress, BucketsAreTakenInOrderOfTheirNumbersOnceTheyAreFull) {
  PassProgress progress = make_progress();
  progress.mark_ready(0);
  progress.mark_ready(1);
  EXPECT_EQ(progress.take_full_bucket(), std::nullopt) << "bucket 1 must wait for bucket 0";
  progress.mark_ready(3);
  EXPECT_EQ(progress.take_full_bucket(), std::nullopt);
  progress.mark_ready(2);
  EXPECT_THAT(progress.take_full_bucket(), Optional(0U));
  EXPECT_TRUE(progress.is_taken(2));
  EXPECT_FALSE(progress.is_taken(0));
  EXPECT_THAT(progress.take_full_bucket(), Optional(1U));
  EXPECT_EQ(progress.take_full_bucket(), std::nullopt);
}

TEST(PassProgress, TheRestCanBeTakenUnfilled) {
  PassProgress progress = make_progress();
  progress.mark_ready(2);
  EXPECT_THAT(progress.find_missing(), ElementsAre(0, 1, 3));
  EXPECT_THAT(progress.take_bucket(), Optional(0U));
  EXPECT_THAT(progress.take_bucket(), Optional(1U));
  EXPECT_EQ(progress.take_bucket(), std::nullopt);
}

TEST(PassProgress, OrderIsThatOfTheGradientsWithAbsentOnesLast) {
  PassProgress progress = make_progress();
  progress.mark_absent(2);
  progress.mark_ready(3);
  progress.mark_ready(0);
  EXPECT_TRUE(progress.is_absent(2));
  EXPECT_TRUE(progress.is_ready(2));
  EXPECT_THAT(progress.order(), ElementsAre(3, 0, 1, 2));
}

TEST(PassProgress, AGradientIsReadyOnce) {
  PassProgress progress = make_progress();
  progress.mark_ready(1);
  EXPECT_THROW(progress.mark_ready(1), Error);
  EXPECT_THROW(progress.mark_absent(1), Error);
}

}  // namespace
}  // namespace unisono::ddp
