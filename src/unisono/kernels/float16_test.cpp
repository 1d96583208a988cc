#include "unisono/kernels/float16.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>

#include <gtest/gtest.h>

namespace unisono::kernels {
namespace {

struct Format {
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint16_t infinity;
  // Halfway between the largest number and what would come next.
  float overflow;

  friend std::ostream& operator<<(std::ostream& out, const Format& format) {
    return out << (format.infinity == 0x7C00 ? "f16" : "bf16");
  }
};

constexpr Format kF16{float_from_f16, f16_from_float, 0x7C00, 65520.0F};
constexpr Format kBF16{float_from_bf16, bf16_from_float, 0x7F80, 0x1.FFp127F};

class Float16 : public ::testing::TestWithParam<Format> {};

TEST_P(Float16, EveryNumberSurvivesTheWayThroughFloat) {
  const Format format = GetParam();
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool is_nan = (half & 0x7FFF) > format.infinity;
    ASSERT_EQ(std::isnan(format.widen(half)), is_nan) << bits;
    const std::uint16_t back = format.narrow(format.widen(half));
    ASSERT_TRUE(is_nan ? (back & 0x7FFF) > format.infinity : back == half) << bits;
  }
}

TEST_P(Float16, WhatLiesBetweenTwoNumbersRoundsToTheNearest) {
  const Format format = GetParam();
  constexpr float upward = std::numeric_limits<float>::infinity();
  for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = format.widen(low) / 2 + format.widen(high) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    if (format.widen(low) < 0x1p-125F) {
      continue;  // halves of these are no floats; the next test has them
    }
    ASSERT_EQ(format.narrow(middle), even) << low;
    ASSERT_EQ(format.narrow(std::nextafter(middle, 0.0F)), low);
    ASSERT_EQ(format.narrow(std::nextafter(middle, upward)), high);
    ASSERT_EQ(format.narrow(-middle), even | 0x8000);
  }
}

TEST_P(Float16, OverflowIsInfinityFromHalfwayOn) {
  const Format format = GetParam();
  EXPECT_EQ(format.narrow(format.overflow), format.infinity);
  EXPECT_EQ(format.narrow(std::nextafter(format.overflow, 0.0F)), format.infinity - 1);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), format.infinity);
  EXPECT_EQ(format.narrow(-format.overflow), format.infinity | 0x8000);
}

TEST(Float16Values, KnownNumbers) {
  EXPECT_EQ(float_from_f16(0x3C00), 1.0F);
  EXPECT_EQ(float_from_f16(0xC000), -2.0F);
  EXPECT_EQ(float_from_f16(0x7BFF), 65504.0F);
  EXPECT_EQ(float_from_f16(0x0001), 0x1p-24F);
  EXPECT_EQ(float_from_f16(0x0400), 0x1p-14F);
  EXPECT_EQ(float_from_bf16(0x3F80), 1.0F);
  EXPECT_EQ(f16_from_float(0x1p-25F), 0) << "halfway between 0 and the smallest";
  EXPECT_EQ(f16_from_float(0x1.000002p-25F), 1);
  EXPECT_EQ(f16_from_float(-0x1p-149F), 0x8000);
  EXPECT_EQ(bf16_from_float(0x1p-134F), 0) << "halfway between 0 and the smallest";
  EXPECT_EQ(bf16_from_float(0x1.8p-134F), 1);
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         Float16,
                         ::testing::Values(kF16, kBF16),
                         [](const auto& parameters) {
                           return parameters.param.infinity == kF16.infinity ? "F16" : "BF16";
                         });

}  // namespace
}  // namespace unisono::kernels
