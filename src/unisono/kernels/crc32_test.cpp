#include "unisono/kernels/crc32.h"

#include <zlib.h>

#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::kernels {
namespace {

std::uint32_t reference(std::span<const std::byte> bytes, std::uint32_t seed) {
  return static_cast<std::uint32_t>(
      ::crc32_z(seed, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

TEST(Crc32, IsTheOneOfZipFiles) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(digits))), 0xCBF43926U);
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(crc32({}, 17), 17U);
}

TEST(Crc32, IsZlibsForEachLengthPlaceAndSeed) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  for (std::size_t n_bytes = 1; n_bytes < 400; ++n_bytes) {
    for (std::size_t offset = 0; offset < 17; ++offset) {
      const std::span part = std::span(bytes).subspan(offset, n_bytes);
      const std::uint32_t seed = offset == 0 ? 0 : static_cast<std::uint32_t>(random());
      ASSERT_EQ(crc32(part, seed), reference(part, seed)) << n_bytes << " from " << offset;
    }
  }
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t cut = random() % bytes.size();
    const std::uint32_t first = crc32(std::span(bytes).first(cut));
    ASSERT_EQ(crc32(std::span(bytes).subspan(cut), first), reference(bytes, 0)) << cut;
  }
}

TEST(Crc32, EachBitCounts) {
  std::vector<std::byte> bytes(1000, std::byte{7});
  for (std::byte& byte : bytes) {
    const std::uint32_t before = crc32(bytes);
    byte ^= std::byte{1};
    ASSERT_NE(crc32(bytes), before);
  }
}

}  // namespace
}  // namespace unisono::kernels
