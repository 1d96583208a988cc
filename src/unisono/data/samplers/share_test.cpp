#include "unisono/data/samplers/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::uint64_t hash_of(const std::vector<std::int64_t>& numbers) {
  std::uint64_t hash = 1469598103934665603U;
  for (const std::int64_t number : numbers) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211U;
  }
  return hash;
}

TEST(RandomPermutation, EqualsTorchRandperm) {
  EXPECT_EQ(hash_of(random_permutation(1000, 0)), 0x5fa6184026343527U);
  EXPECT_EQ(hash_of(random_permutation(60'000, 1)), 0x2cfcb47f50637e3dU);
}

TEST(RandomPermutation, TakesTheLowBitsOfTheSeedAsTorchDoes) {
  EXPECT_EQ(hash_of(random_permutation(1'000'000, (std::uint64_t{1} << 32) + 7)),
            0xe6a03ed3d44fbb49U);
  EXPECT_EQ(hash_of(random_permutation(65'537, static_cast<std::uint64_t>(-1))),
            0x45a0ef7f1280716bU);
}

TEST(RandomPermutation, SmallestSizes) {
  EXPECT_THAT(random_permutation(0, 3), IsEmpty());
  EXPECT_THAT(random_permutation(1, 3), ElementsAre(0));
}

TEST(RandomPermutation, RejectsImpossibleSizes) {
  for (const std::int64_t n : {std::int64_t{-1}, (std::int64_t{1} << 48) + 1}) {
    EXPECT_EQ(test::error_of([n] { (void)random_permutation(n, 0); }).code,
              ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace unisono::data
