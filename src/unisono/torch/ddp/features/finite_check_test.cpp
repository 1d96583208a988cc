#include "unisono/torch/ddp/features/finite_check.h"

#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::ddp {
namespace {

template <class T>
void expect_found() {
  using Limits = std::numeric_limits<T>;
  for (const std::size_t size : {1U, 5U, 4096U, 4099U}) {
    std::vector<T> numbers(size, Limits::max());
    numbers[0] = Limits::denorm_min();
    EXPECT_TRUE(are_all_finite(std::span<const T>(numbers)));
    for (const T bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      for (const std::size_t place : {std::size_t{0}, size / 2, size - 1}) {
        const T before = std::exchange(numbers[place], bad);
        EXPECT_FALSE(are_all_finite(std::span<const T>(numbers))) << size << " at " << place;
        numbers[place] = before;
      }
    }
  }
}

TEST(AllFinite, FindsAnInfinityOrNaNAnywhere) {
  expect_found<float>();
  expect_found<double>();
}

TEST(AllFinite, KnowsBothKindsOfSixteenBits) {
  constexpr std::uint16_t kHalf = 0x7C00;
  constexpr std::uint16_t kBrain = 0x7F80;
  const std::vector<std::uint16_t> largest_half{0x7BFF, 0xFBFF, 0};
  EXPECT_TRUE(are_all_finite(largest_half, kHalf));
  const std::vector<std::uint16_t> half_infinity{0x0001, 0xFC00};
  EXPECT_FALSE(are_all_finite(half_infinity, kHalf));
  EXPECT_TRUE(are_all_finite(half_infinity, kBrain));
  const std::vector<std::uint16_t> brain_nan{0x7FC0};
  EXPECT_FALSE(are_all_finite(brain_nan, kBrain));
}

TEST(AllFinite, NothingIsFinite) {
  EXPECT_TRUE(are_all_finite(std::span<const float>()));
}

}  // namespace
}  // namespace unisono::ddp
