#include "unisono/kernels/compress.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/kernels/float8.h"

namespace unisono::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> round_trip(Compression compression, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(compressed_bytes(compression, count)) + 1,
                               std::byte{0xA5});
  compress(compression, values.data(), count, bytes.data());
  EXPECT_EQ(bytes.back(), std::byte{0xA5}) << "more was written than promised";
  std::vector<float> back(values.size() + 1, 7.0F);
  decompress(compression, bytes.data(), count, back.data());
  EXPECT_EQ(back.back(), 7.0F) << "more was written than promised";
  back.pop_back();
  return back;
}

// Normally distributed, over many magnitudes.
std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
  }
  return values;
}

TEST(Compress, TakesAHalfAndAboutAQuarterOfTheBytes) {
  EXPECT_EQ(compressed_bytes(Compression::kNone, 1000), 4000);
  EXPECT_EQ(compressed_bytes(Compression::kBFloat16, 1000), 2000);
  EXPECT_EQ(compressed_bytes(Compression::kFloat8, 1000), 1000 + 8 * 4);
  for (const Compression compression :
       {Compression::kNone, Compression::kBFloat16, Compression::kFloat8}) {
    EXPECT_EQ(compressed_bytes(compression, 0), 0);
  }
}

TEST(Compress, ErrorsAreWithinTheStatedBounds) {
  for (const std::size_t count : {0U, 1U, 7U, 127U, 128U, 129U, 4096U, 10001U}) {
    const std::vector<float> values = random_values(count, static_cast<unsigned>(count));
    EXPECT_EQ(round_trip(Compression::kNone, values), values);
    const std::vector<float> halves = round_trip(Compression::kBFloat16, values);
    const std::vector<float> eighths = round_trip(Compression::kFloat8, values);
    for (std::size_t index = 0; index < count; ++index) {
      const float value = values[index];
      EXPECT_LE(std::abs(halves[index] - value), std::ldexp(std::abs(value), -8)) << value;
      const std::size_t begin = index / 128 * 128;
      const std::size_t end = std::min<std::size_t>(begin + 128, count);
      float largest = 0;
      for (std::size_t other = begin; other < end; ++other) {
        largest = std::max(largest, std::abs(values[other]));
      }
      EXPECT_LE(std::abs(eighths[index] - value),
                std::max(std::ldexp(std::abs(value), -4), std::ldexp(largest, -18)))
          << value << " beside " << largest;
    }
  }
}

// 448 has scale 1: these are E4M3's own numbers, and half-way cases between them.
TEST(Compress, RoundsToE4M3sNumbers) {
  std::vector<float> values(128, 0.0F);
  const std::vector<std::array<float, 2>> golden{{448, 448},
                                                 {-448, -448},
                                                 {1, 1},
                                                 {1.0625F, 1},      // A tie: to even.
                                                 {1.1875F, 1.25F},  // A tie: to even.
                                                 {1.07F, 1.125F},
                                                 {-17, -16},            // A tie: to even.
                                                 {0x1p-6F, 0x1p-6F},    // The smallest normal.
                                                 {0x1p-9F, 0x1p-9F},    // The smallest subnormal.
                                                 {0x1p-10F, 0},         // A tie: to even.
                                                 {0x1.8p-9F, 0x1p-8F},  // A tie: to even.
                                                 {0x1.01p-10F, 0x1p-9F},
                                                 {0x1.fp-7F, 0x1p-6F},
                                                 {431, 416},
                                                 {433, 448}};
  for (std::size_t index = 0; index < golden.size(); ++index) {
    values[index] = golden[index][0];
  }
  const std::vector<float> back = round_trip(Compression::kFloat8, values);
  for (std::size_t index = 0; index < golden.size(); ++index) {
    EXPECT_EQ(back[index], golden[index][1]) << golden[index][0];
  }
}

TEST(Compress, NothingThatIsNoNumberBecomesOne) {
  for (const float special : {kInfinity, -kInfinity, kNan}) {
    std::vector<float> values(300, 1.0F);
    values[130] = special;
    const std::vector<float> back = round_trip(Compression::kFloat8, values);
    for (std::size_t index = 0; index < back.size(); ++index) {
      const bool is_in_its_block = index >= 128 && index < 256;
      EXPECT_EQ(std::isnan(back[index]), is_in_its_block) << index;
    }
    const float half = round_trip(Compression::kBFloat16, values)[130];
    EXPECT_TRUE(std::isnan(special) ? std::isnan(half) : half == special);
  }
}

TEST(Compress, TinyBlocksAreZerosAndHugeOnesStayFinite) {
  const std::vector<float> tiny(128, 0x1p-130F);
  EXPECT_EQ(round_trip(Compression::kFloat8, tiny), std::vector<float>(128, 0.0F));
  const std::vector<float> least(128, 0x1p-116F);
  EXPECT_EQ(round_trip(Compression::kFloat8, least), least);
  const std::vector<float> huge(128, std::numeric_limits<float>::max());
  for (const float value : round_trip(Compression::kFloat8, huge)) {
    EXPECT_NEAR(value / std::numeric_limits<float>::max(), 1, 1e-6);
  }
}

TEST(Compress, PointersNeedNoAlignmentAndTheCallersRoundingDoesNotMatter) {
  const std::vector<float> values = random_values(517, 8);
  for (const Compression compression : {Compression::kBFloat16, Compression::kFloat8}) {
    const auto n_bytes = static_cast<std::size_t>(compressed_bytes(compression, 517));
    std::vector<std::byte> expected(n_bytes);
    compress(compression, values.data(), 517, expected.data());
    std::vector<std::byte> shifted(values.size() * 4 + 1);
    std::memcpy(shifted.data() + 1, values.data(), values.size() * 4);
    std::vector<std::byte> bytes(n_bytes + 3);
    const int mode = std::fegetround();
    std::fesetround(FE_UPWARD);
    compress(compression, shifted.data() + 1, 517, bytes.data() + 3);
    std::fesetround(mode);
    EXPECT_EQ(std::vector(bytes.begin() + 3, bytes.end()), expected);
    std::vector<float> back(517);
    decompress(compression, expected.data(), 517, back.data());
    decompress(compression, bytes.data() + 3, 517, shifted.data() + 1);
    EXPECT_EQ(std::memcmp(shifted.data() + 1, back.data(), 517 * 4), 0);
  }
}

TEST(Compress, VectorsDoWhatPlainLoopsDo) {
  std::mt19937 random(17);
  for (int trial = 0; trial < 2000; ++trial) {
    std::array<std::uint8_t, kFloat8Block * 4> floats;
    // Any bits, in a range of exponents, so that most blocks are finite.
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
