#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

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
}  // namespace unisono::ddp
