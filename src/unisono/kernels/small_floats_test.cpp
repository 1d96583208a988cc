#include "unisono/kernels/small_floats.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::kernels {
namespace {

struct Format {
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint16_t infinity;
  // Midway between the largest number and the next representable number in a wider format.
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
      continue;  // The halves are not representable as floats; the next test covers these values.
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

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> round_trip(const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(float8_bytes(count)) + 1, std::byte{0xA5});
  encode_float8(values.data(), count, bytes.data());
  EXPECT_EQ(bytes.back(), std::byte{0xA5}) << "more was written than promised";
  std::vector<float> back(values.size() + 1, 7.0F);
  decode_float8(bytes.data(), count, back.data());
  EXPECT_EQ(back.back(), 7.0F) << "more was written than promised";
  back.pop_back();
  return back;
}

// Returns normally distributed values over many magnitudes.
std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
  }
  return values;
}

TEST(Float8, TakesAboutAQuarterOfTheBytes) {
  EXPECT_EQ(float8_bytes(1000), 1000 + 8 * 4);
  EXPECT_EQ(float8_bytes(0), 0);
}

TEST(Float8, ErrorsAreWithinTheStatedBounds) {
  for (const std::size_t count : {0U, 1U, 7U, 127U, 128U, 129U, 4096U, 10001U}) {
    const std::vector<float> values = random_values(count, static_cast<unsigned>(count));
    const std::vector<float> back = round_trip(values);
    for (std::size_t index = 0; index < count; ++index) {
      const float value = values[index];
      const std::size_t begin = index / 128 * 128;
      const std::size_t end = std::min<std::size_t>(begin + 128, count);
      float largest = 0;
      for (std::size_t other = begin; other < end; ++other) {
        largest = std::max(largest, std::abs(values[other]));
      }
      EXPECT_LE(std::abs(back[index] - value),
                std::max(std::ldexp(std::abs(value), -4), std::ldexp(largest, -18)))
          << value << " beside " << largest;
    }
  }
}

// With the maximum 448 the scale is 1: the values are E4M3's own numbers and ties between these.
TEST(Float8, RoundsToE4M3sNumbers) {
  std::vector<float> values(128, 0.0F);
  const std::vector<std::array<float, 2>> golden{{448, 448},
                                                 {-448, -448},
                                                 {1, 1},
                                                 {1.0625F, 1},      // A tie rounds to even.
                                                 {1.1875F, 1.25F},  // A tie rounds to even.
                                                 {1.07F, 1.125F},
                                                 {-17, -16},            // A tie rounds to even.
                                                 {0x1p-6F, 0x1p-6F},    // The smallest normal.
                                                 {0x1p-9F, 0x1p-9F},    // The smallest subnormal.
                                                 {0x1p-10F, 0},         // A tie rounds to even.
                                                 {0x1.8p-9F, 0x1p-8F},  // A tie rounds to even.
                                                 {0x1.01p-10F, 0x1p-9F},
                                                 {0x1.fp-7F, 0x1p-6F},
                                                 {431, 416},
                                                 {433, 448}};
  for (std::size_t index = 0; index < golden.size(); ++index) {
    values[index] = golden[index][0];
  }
  const std::vector<float> back = round_trip(values);
  for (std::size_t index = 0; index < golden.size(); ++index) {
    EXPECT_EQ(back[index], golden[index][1]) << golden[index][0];
  }
}

TEST(Float8, NothingThatIsNoNumberBecomesOne) {
  for (const float special : {kInfinity, -kInfinity, kNan}) {
    std::vector<float> values(300, 1.0F);
    values[130] = special;
    const std::vector<float> back = round_trip(values);
    for (std::size_t index = 0; index < back.size(); ++index) {
      const bool is_in_its_block = index >= 128 && index < 256;
      EXPECT_EQ(std::isnan(back[index]), is_in_its_block) << index;
    }
  }
}

TEST(Float8, TinyBlocksAreZerosAndHugeOnesStayFinite) {
  const std::vector<float> tiny(128, 0x1p-130F);
  EXPECT_EQ(round_trip(tiny), std::vector<float>(128, 0.0F));
  const std::vector<float> least(128, 0x1p-116F);
  EXPECT_EQ(round_trip(least), least);
  const std::vector<float> huge(128, std::numeric_limits<float>::max());
  for (const float value : round_trip(huge)) {
    EXPECT_NEAR(value / std::numeric_limits<float>::max(), 1, 1e-6);
  }
}

TEST(Float8, BytesNeedNoAlignmentAndTheCallersRoundingDoesNotMatter) {
  const std::vector<float> values = random_values(517, 8);
  const auto n_bytes = static_cast<std::size_t>(float8_bytes(517));
  std::vector<std::byte> expected(n_bytes);
  encode_float8(values.data(), 517, expected.data());
  std::vector<float> expected_back(517);
  decode_float8(expected.data(), 517, expected_back.data());
  std::vector<std::byte> shifted(n_bytes + 3);
  std::vector<float> back(517);
  const int mode = std::fegetround();
  std::fesetround(FE_UPWARD);
  encode_float8(values.data(), 517, shifted.data() + 3);
  decode_float8(shifted.data() + 3, 517, back.data());
  std::fesetround(mode);
  EXPECT_EQ(std::vector(shifted.begin() + 3, shifted.end()), expected);
  EXPECT_EQ(back, expected_back);
}

TEST(Float8, VectorsDoWhatPlainLoopsDo) {
  std::mt19937 random(17);
  for (int trial = 0; trial < 2000; ++trial) {
    std::array<std::uint8_t, kFloat8Block * 4> floats;
    // Random bits with a limited range of exponents, so that most blocks are finite.
    const unsigned exponent = 1 + static_cast<unsigned>(random() % 240);
    for (std::size_t index = 0; index < kFloat8Block; ++index) {
      const auto spread = static_cast<unsigned>(random() % 15);
      const std::uint32_t bits = (static_cast<std::uint32_t>(random()) & 0x807F'FFFFU) |
                                 ((exponent + spread) & 0xFFU) << 23U;
      std::memcpy(floats.data() + 4 * index, &bits, 4);
    }
    std::array<std::uint8_t, kFloat8Block> codes;
    std::array<std::uint8_t, kFloat8Block> expected_codes;
    const float scale = float8_encoder()(floats.data(), codes.data());
    const float expected_scale = encode_float8_reference(floats.data(), expected_codes.data());
    ASSERT_EQ(std::memcmp(&scale, &expected_scale, 4), 0);
    ASSERT_EQ(codes, expected_codes);
    std::array<std::uint8_t, kFloat8Block * 4> back;
    std::array<std::uint8_t, kFloat8Block * 4> expected;
    float8_decoder()(codes.data(), scale, back.data());
    decode_float8_reference(codes.data(), scale, expected.data());
    ASSERT_EQ(back, expected);
  }
}

}  // namespace
}  // namespace unisono::kernels
