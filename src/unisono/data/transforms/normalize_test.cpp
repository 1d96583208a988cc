#include "unisono/data/transforms/normalize.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::error_of;

// FNV-1a over the little-endian bytes of all 256 values, as computed from torch's.
std::uint64_t hash_of_table(const Normalize& normalize) {
  std::uint64_t hash = 1469598103934665603U;
  for (unsigned pixel = 0; pixel < 256; ++pixel) {
    const auto bits = std::bit_cast<std::uint32_t>(normalize(static_cast<std::byte>(pixel)));
    for (const int shift : {0, 8, 16, 24}) {
      hash = (hash ^ (bits >> shift & 0xff)) * 1099511628211U;
    }
  }
  return hash;
}

TEST(Normalize, MnistsEndsAreTorchs) {
  const Normalize normalize = mnist_normalize();
  EXPECT_EQ(normalize(std::byte{0}), -0.42421296F);
  EXPECT_EQ(normalize(std::byte{255}), 2.8214867F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(normalize(std::byte{77})), 0x3f0e4ce9U);
}

TEST(Normalize, AllValuesAreTorchsBitForBit) {
  EXPECT_EQ(hash_of_table(mnist_normalize()), 0x6deb4b179ff39634U);
  EXPECT_EQ(hash_of_table(Normalize(0.5, 0.5)), 0x7e000e2c05dd3924U);
  EXPECT_EQ(hash_of_table(Normalize(0.2860, 0.3530)), 0x48c7b960846ff88dU);
  EXPECT_EQ(hash_of_table(Normalize(0.0, 1.0)), 0x323a07fa3203dfb1U);
}

TEST(Normalize, AppliesToEachPixel) {
  const std::array<std::byte, 3> pixels{std::byte{0}, std::byte{255}, std::byte{51}};
  std::array<float, 3> values{};
  Normalize(0.0, 1.0).apply(pixels, values);
  EXPECT_EQ(values, (std::array<float, 3>{0.0F, 1.0F, 0.2F}));
}

TEST(Normalize, RejectsWhatGivesNoNumbers) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [mean, std] : {std::pair{0.0, 0.0},
                                  {0.0, -1.0},
                                  {0.0, nan},
                                  {nan, 1.0},
                                  {infinity, 1.0},
                                  {0.0, 1e-60},
                                  {0.0, infinity}}) {
    EXPECT_EQ(error_of([mean = mean, std = std] { (void)Normalize(mean, std); }).code,
              ErrorCode::kInvalidArgument)
        << mean << ", " << std;
  }
  std::array<float, 2> values{};
  const std::array<std::byte, 3> pixels{};
  EXPECT_EQ(error_of([&] { mnist_normalize().apply(pixels, values); }).code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace unisono
