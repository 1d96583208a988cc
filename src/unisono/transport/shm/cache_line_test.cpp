#include "unisono/transport/shm/cache_line.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::shm {
namespace {

using ::testing::Each;

constexpr std::size_t kMost = 100'000;
constexpr std::size_t kOffset = 61;

std::vector<std::byte> distinct_bytes() {
  std::vector<std::byte> bytes(kMost + 2 * kOffset);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i % 251 + 1);
  }
  return bytes;
}

class CacheLine : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CacheLine, CopiesAndLeavesTheOriginalAsItWas) {
  const std::size_t n_bytes = GetParam();
  std::vector<std::byte> from = distinct_bytes();
  const std::vector<std::byte> original = from;
  std::vector<std::byte> to(from.size());
  take_over(to.data() + kOffset, from.data() + kOffset, n_bytes);
  EXPECT_EQ(from, original);
  const auto begin = to.begin() + kOffset;
  const auto end = begin + static_cast<std::ptrdiff_t>(n_bytes);
  EXPECT_TRUE(std::equal(begin, end, original.begin() + kOffset));
  EXPECT_THAT(std::vector(to.begin(), begin), Each(std::byte{0}));
  EXPECT_THAT(std::vector(end, to.end()), Each(std::byte{0}));
}

TEST_P(CacheLine, HandsBackTheSameBytes) {
  std::vector<std::byte> bytes = distinct_bytes();
  const std::vector<std::byte> original = bytes;
  hand_back(bytes.data() + kOffset, GetParam());
  EXPECT_EQ(bytes, original);
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         CacheLine,
                         ::testing::Values(0, 1, 63, 64, 65, 4095, 4096, 4097, kMost));

}  // namespace
}  // namespace unisono::shm
