#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/data/samplers/share.h"

namespace unisono::data {
namespace {

using ::testing::ElementsAre;

// 1.7 GB each: the sizes directly below and above the limit at which torch changes its method of
// shuffling.
constexpr std::int64_t kFirstWide = std::numeric_limits<std::uint32_t>::max() / 20;

std::vector<std::int64_t> last_two(const std::vector<std::int64_t>& numbers) {
  return {numbers.end() - 2, numbers.end()};
}

TEST(RandomPermutationSlow, EqualsTorchBelowItsThreshold) {
  std::vector<std::int64_t> numbers = random_permutation(kFirstWide - 1, 3);
  EXPECT_THAT(last_two(numbers), ElementsAre(212516164, 92186696));
  numbers.resize(6);
  EXPECT_THAT(numbers, ElementsAre(3426993, 89012687, 34994685, 171579910, 175684569, 91605569));
}

TEST(RandomPermutationSlow, EqualsTorchFromItsThresholdOn) {
  std::vector<std::int64_t> numbers = random_permutation(kFirstWide, 3);
  EXPECT_THAT(last_two(numbers), ElementsAre(122959525, 138283752));
  numbers.resize(6);
  EXPECT_THAT(numbers, ElementsAre(50815193, 116864026, 18612126, 8421410, 157113196, 174023950));
}

}  // namespace
}  // namespace unisono::data
