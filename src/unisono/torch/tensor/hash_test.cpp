#include "unisono/torch/tensor/hash.h"

#include <set>

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Hash, EveryBitAndTheLengthCount) {
  std::vector<std::byte> bytes(19);
  std::set<std::uint64_t> hashes{hash_bytes(bytes)};
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    bytes[i / 8] ^= std::byte{1} << (i % 8);
    hashes.insert(hash_bytes(bytes));
    bytes[i / 8] ^= std::byte{1} << (i % 8);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    hashes.insert(hash_bytes(std::span(bytes).first(size)));
  }
  EXPECT_EQ(hashes.size(), 1 + 19 * 8 + 19);
}

TEST(Hash, EqualBytesHaveEqualHashesAndTheSeedChains) {
  const std::vector<std::byte> a(32, std::byte{1});
  const std::vector<std::byte> b(32, std::byte{1});
  EXPECT_EQ(hash_bytes(a), hash_bytes(b));
  EXPECT_NE(hash_bytes(a, 1), hash_bytes(a, 2));
}

}  // namespace
}  // namespace unisono
