#include "unisono/torch/ddp/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/pass_flags.h"

namespace unisono::ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<GradientSpec> floats(const std::vector<std::int64_t>& counts) {
  std::vector<GradientSpec> gradients;
  for (const std::int64_t count : counts) {
    gradients.push_back({.n_elems = count, .dtype = DType::kFloat32});
  }
  return gradients;
}

std::vector<std::size_t> parameters_of(const BucketLayout& bucket) {
  std::vector<std::size_t> parameters;
  for (const BucketSlot& slot : bucket.slots) {
    parameters.push_back(slot.parameter);
  }
  return parameters;
}

TEST(BucketPlan, EqualGradientsThatDivideTheCapFillCeilBuckets) {
  for (const std::int64_t n : {1, 4, 5, 8, 9}) {
    const auto gradients = floats(std::vector<std::int64_t>(static_cast<std::size_t>(n), 256));
    const BucketPlan plan = plan_buckets(
        gradients, reverse_order(gradients.size()), {.first_bytes = 4096, .bytes = 4096});
    EXPECT_THAT(plan.buckets, SizeIs(static_cast<std::size_t>((n + 3) / 4))) << n;
  }
}

TEST(BucketPlan, TheFirstBucketHasASmallerCap) {
  const auto gradients = floats({1024, 1024, 1024, 1024, 1024, 16});
  const BucketPlan plan =
      plan_buckets(gradients, reverse_order(6), {.first_bytes = 64, .bytes = 8192});
  ASSERT_THAT(plan.buckets, SizeIs(4));
  EXPECT_THAT(parameters_of(plan.buckets[0]), ElementsAre(5));
  EXPECT_THAT(parameters_of(plan.buckets[1]), ElementsAre(4, 3));
  EXPECT_THAT(parameters_of(plan.buckets[2]), ElementsAre(2, 1));
  EXPECT_THAT(parameters_of(plan.buckets[3]), ElementsAre(0));
}

TEST(BucketPlan, OffsetsAreAlignedAndDoNotOverlap) {
  const auto gradients = floats({3, 17, 1, 0, 5});
  const BucketPlan plan = plan_buckets(gradients, reverse_order(5), {});
  ASSERT_THAT(plan.buckets, SizeIs(1));
  std::int64_t end = 0;
  for (const BucketSlot& slot : plan.buckets[0].slots) {
    EXPECT_EQ(slot.offset * 4 % 64, 0);
    EXPECT_GE(slot.offset, end);
    end = slot.offset + gradients[slot.parameter].n_elems;
  }
  EXPECT_GE(plan.flags_offset, end);
  EXPECT_EQ(plan.buckets[0].n_elems, plan.flags_offset + kFlagBits);
}

TEST(BucketPlan, EachTypeHasItsOwnBucketsInOrderOfTheirFirstGradient) {
  const std::vector<GradientSpec> gradients{
      {10, DType::kFloat64}, {10, DType::kFloat32}, {10, DType::kFloat64}, {10, DType::kFloat32}};
  const BucketPlan plan = plan_buckets(gradients, std::vector<std::size_t>{1, 0, 3, 2}, {});
  ASSERT_THAT(plan.buckets, SizeIs(2));
  EXPECT_EQ(plan.buckets[0].dtype, DType::kFloat32);
  EXPECT_THAT(parameters_of(plan.buckets[0]), ElementsAre(1, 3));
  EXPECT_EQ(plan.buckets[1].dtype, DType::kFloat64);
  EXPECT_THAT(parameters_of(plan.buckets[1]), ElementsAre(0, 2));
}

TEST(BucketPlan, VotesLieInTheFirstBucketBeforeMarks) {
  for (const std::int64_t cap : {64, 1 << 20}) {
    const auto gradients = floats({3, 100});
    const BucketPlan plan =
        plan_buckets(gradients, reverse_order(2), {.first_bytes = cap, .bytes = cap}, 5);
    const BucketLayout& first = plan.buckets.front();
    const BucketSlot& before = first.slots.back();
    EXPECT_GE(plan.votes_offset, before.offset + gradients[before.parameter].n_elems);
    EXPECT_EQ(plan.votes_offset * 4 % 64, 0);
    if (plan.buckets.size() == 1) {
      EXPECT_GE(plan.flags_offset, plan.votes_offset + 5);
    } else {
      EXPECT_EQ(first.n_elems, plan.votes_offset + 5);
    }
  }
}

TEST(BucketPlan, AnOrderThatIsNoPermutationIsABug) {
  const auto gradients = floats({1, 1});
  const std::vector<std::vector<std::size_t>> orders{{0, 0}, {0}, {0, 2}, {}};
  for (const auto& order : orders) {
    EXPECT_THROW(static_cast<void>(plan_buckets(gradients, order, {})), Error);
  }
}

}  // namespace
}  // namespace unisono::ddp
