#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::ddp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LossyFloats, WhatIsNoNumberIsLostFromTheError) {
  std::vector<float> error{1, kInfinity, -kInfinity, std::nanf(""), 3e38F, 5};
  const std::vector<float> sent{0.25F, 1, 1, 1, -3e38F, kInfinity};
  subtract_finite(error.data(), sent.data(), 6);
  EXPECT_EQ(error, (std::vector<float>{0.75F, 0, 0, 0, 0, 0}));
}

TEST(LossyFloats, WhatTheMeanLacksIsAddedForAllRanks) {
  std::vector<float> error{1, 2, 3};
  const std::vector<float> mean{1.5F, 1, kInfinity};
  const std::vector<float> sent{1, 1.25F, 1};
  add_lost(error.data(), mean.data(), sent.data(), 4, 3);
  EXPECT_EQ(error, (std::vector<float>{3, 1, 0}));
}

TEST(LossyFloats, AreAddedAndDivided) {
  std::vector<float> sums{1, -2};
  const std::vector<float> floats{2, 8};
  add_floats(sums.data(), floats.data(), 2);
  divide_floats(sums.data(), 4, 2);
  EXPECT_EQ(sums, (std::vector<float>{0.75F, 1.5F}));
}

}  // namespace

namespace {

std::vector<float> there_and_back(const std::vector<float>& floats) {
  const auto count = static_cast<std::int64_t>(floats.size());
  // One byte before the data makes all data unaligned.
  std::vector<std::byte> bytes(static_cast<std::size_t>(int8_bytes(count)) + 1);
  encode_int8(floats.data(), count, bytes.data() + 1);
  std::vector<float> result(floats.size());
  decode_int8(bytes.data() + 1, count, result.data());
  return result;
}

TEST(Int8Blocks, WhatComesBackIsOffByHalfAStepOfItsBlock) {
  for (const std::size_t count : {1U, 127U, 128U, 129U, 1000U}) {
    std::vector<float> floats(count);
    for (std::size_t i = 0; i < count; ++i) {
      floats[i] = std::sin(static_cast<float>(i)) * std::ldexp(1.0F, static_cast<int>(i / 128) * 9);
    }
    const std::vector<float> back = there_and_back(floats);
    for (std::size_t begin = 0; begin < count; begin += 128) {
      float largest = 0;
      const std::size_t end = std::min<std::size_t>(begin + 128, count);
      for (std::size_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::abs(floats[i]));
      }
      for (std::size_t i = begin; i < end; ++i) {
        EXPECT_LE(std::abs(back[i] - floats[i]), largest / 254 * 1.0001F) << i << " of " << count;
      }
    }
  }
}

TEST(Int8Blocks, ABlockWithoutFiniteNumbersComesBackAsNaNsAndLeavesTheOthers) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> floats(256, 127);
    floats[5] = bad;
    const std::vector<float> back = there_and_back(floats);
    EXPECT_TRUE(std::isnan(back[5]));
    EXPECT_TRUE(std::isnan(back[127]));
    EXPECT_EQ(back[128], 127);
  }
}

TEST(Int8Blocks, TheSmallestAndTheLargestNumbersAreNoTrouble) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> back = there_and_back({largest, -largest, 0});
  EXPECT_NEAR(back[0] / largest, 1, 1e-6);
  EXPECT_NEAR(back[1] / largest, -1, 1e-6);
  EXPECT_EQ(back[2], 0);
  EXPECT_EQ(there_and_back({std::numeric_limits<float>::denorm_min(), 0})[0], 0);
  EXPECT_EQ(there_and_back(std::vector<float>(130, 0)), std::vector<float>(130, 0));
}

}  // namespace
}  // namespace unisono::ddp
