#include "unisono/cli/bench_pattern.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::cli::bench {
namespace {

TEST(BenchPattern, SumsOfAnyNumberOfRanksAreExactInEveryDType) {
  for (const int world_size : {1, 2, 32, 33, 1000}) {
    const Pattern pattern(world_size, true, 1);
    for (std::int64_t index = 0; index < 200; ++index) {
      EXPECT_LE(pattern.sum(index), 127);
    }
  }
}

TEST(BenchPattern, RanksPlacesAndSeedsDiffer) {
  const Pattern pattern(2, false, 0);
  const Pattern other(2, false, 1);
  int n_equal = 0;
  for (std::int64_t index = 0; index < 1000; ++index) {
    n_equal += pattern.value(0, index) == pattern.value(1, index) ? 1 : 0;
    n_equal += pattern.value(0, index) == pattern.value(0, index + 1) ? 1 : 0;
    n_equal += pattern.value(0, index) == other.value(0, index) ? 1 : 0;
  }
  // With 97 values, two random values are equal in 1 of 97 cases.
  EXPECT_LT(n_equal, 100);
}

TEST(BenchPattern, EveryDTypeHoldsWhatItWasFilledWith) {
  const auto expected = [](std::int64_t index) { return static_cast<int>(index % 128); };
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    std::vector<std::byte> memory(16 * 300);
    const Buffer buffer{
        .data = memory.data(), .count = 300, .dtype = static_cast<DType>(dtype), .device = {}};
    poison(buffer);
    EXPECT_EQ(count_wrong(buffer, expected), 300) << to_string(buffer.dtype);
    fill(buffer, expected);
    EXPECT_EQ(count_wrong(buffer, expected), 0) << to_string(buffer.dtype);
  }
}

TEST(BenchPattern, ValuesAreTheNumbersTheyMean) {
  const auto expected = [](std::int64_t index) { return static_cast<int>(index); };
  std::vector<float> floats(100);
  fill(as_buffer(std::span(floats)), expected);
  EXPECT_EQ(floats[97], 97.0F);
  std::vector<std::int16_t> integers(100);
  fill(as_buffer(std::span(integers)), expected);
  EXPECT_EQ(integers[97], 97);
  // 1.0 and 96.0 = 1.5 * 2^6 in both 16-bit formats.
  std::vector<std::uint16_t> halves(100);
  fill({.data = halves.data(), .count = 100, .dtype = DType::kFloat16}, expected);
  EXPECT_EQ(halves[1], 0x3C00);
  EXPECT_EQ(halves[96], 0x5600);
  fill({.data = halves.data(), .count = 100, .dtype = DType::kBFloat16}, expected);
  EXPECT_EQ(halves[1], 0x3F80);
  EXPECT_EQ(halves[96], 0x42C0);
}

TEST(BenchPattern, EachBrokenElementIsCountedOnce) {
  const auto expected = [](std::int64_t index) { return static_cast<int>(index % 5); };
  std::vector<float> values(2000);
  const Buffer buffer = as_buffer(std::span(values));
  fill(buffer, expected);
  values[0] += 1;
  values[7] = -values[7];
  values[1999] = 1e-30F;
  EXPECT_EQ(count_wrong(buffer, expected), 3);
  // An error in both parts of a complex number counts as one element.
  const Buffer complex{.data = values.data(), .count = 1000, .dtype = DType::kComplex64};
  fill(complex, expected);
  values[10] += 1;
  values[11] += 1;
  EXPECT_EQ(count_wrong(complex, expected), 1);
}

}  // namespace
}  // namespace unisono::cli::bench
