#include "unisono/datasets/transforms.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/random.h"

#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::HasSubstr;

// FNV-1a over the little-endian bytes of the 256 values of torchvision.
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

using Pixels = std::vector<std::byte>;

constexpr ImageShape kShape{.channels = 2, .height = 3, .width = 4};

// Pixels 1, 2, 3, ...
Pixels numbered(const ImageShape& shape) {
  Pixels pixels(static_cast<std::size_t>(shape.n_pixels()));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::byte>(i + 1);
  }
  return pixels;
}

// Reference implementation of the shift.
Pixels shifted(const ImageShape& shape,
               const Pixels& image,
               std::int64_t down,
               std::int64_t right) {
  Pixels result(image.size());
  for (std::int64_t place = 0; place < shape.n_pixels(); ++place) {
    const std::int64_t row = place / shape.width % shape.height + down;
    const std::int64_t column = place % shape.width + right;
    if (row >= 0 && row < shape.height && column >= 0 && column < shape.width) {
      result[static_cast<std::size_t>(place)] =
          image[static_cast<std::size_t>(place + down * shape.width + right)];
    }
  }
  return result;
}

TEST(RandomCrop, GivesEveryShiftWithinThePadding) {
  const Pixels image = numbered(kShape);
  std::set<Pixels> expected;
  for (std::int64_t down = -2; down <= 2; ++down) {
    for (std::int64_t right = -2; right <= 2; ++right) {
      expected.insert(shifted(kShape, image, down, right));
    }
  }
  ASSERT_EQ(expected.size(), 25U);
  std::set<Pixels> seen;
  data::Random random(3);
  for (int draw = 0; draw < 1000; ++draw) {
    Pixels crop(image.size(), std::byte{0xff});
    random_crop(kShape, image, 2, random, crop);
    seen.insert(crop);
  }
  EXPECT_EQ(seen, expected);
}

TEST(RandomCrop, WithoutPaddingIsTheImage) {
  const Pixels image = numbered(kShape);
  Pixels crop(image.size());
  data::Random random(3);
  random_crop(kShape, image, 0, random, crop);
  EXPECT_EQ(crop, image);
}

TEST(RandomCrop, HugePaddingLeavesBlackImages) {
  const Pixels image = numbered(kShape);
  Pixels crop(image.size(), std::byte{0xff});
  data::Random random(3);
  random_crop(kShape, image, std::int64_t{1} << 30, random, crop);
  EXPECT_EQ(crop, Pixels(image.size()));
}

TEST(FlipHorizontally, TurnsEachRow) {
  Pixels image = numbered(kShape);
  flip_horizontally(kShape, image);
  EXPECT_EQ(image[0], std::byte{4});
  EXPECT_EQ(image[3], std::byte{1});
  EXPECT_EQ(image[4], std::byte{8});
  EXPECT_EQ(image[23], std::byte{21});
  flip_horizontally(kShape, image);
  EXPECT_EQ(image, numbered(kShape));
}

TEST(ImageCrops, ExplainImpossibleArguments) {
  Pixels image = numbered(kShape);
  Pixels small(3);
  data::Random random(0);
  const CaughtError error = error_of([&] { random_crop(kShape, image, 1, random, small); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("3 bytes are not an image of 2 x 3 x 4"));
  EXPECT_THAT(error_of([&] { random_crop(kShape, small, 1, random, image); }).message,
              HasSubstr("3 bytes"));
  EXPECT_THAT(error_of([&] { random_crop(kShape, image, -1, random, image); }).message,
              HasSubstr("padding is -1"));
  EXPECT_THAT(error_of([&] { flip_horizontally(kShape, small); }).message, HasSubstr("3 bytes"));
}

Pixels pixels_of(const std::vector<int>& values) {
  Pixels pixels;
  for (const int value : values) {
    pixels.push_back(static_cast<std::byte>(value));
  }
  return pixels;
}

// tests/parity compares with Pillow.
TEST(ResizeImage, AveragesWhereItShrinks) {
  const ImageShape shape{.channels = 1, .height = 2, .width = 4};
  const Pixels image = pixels_of({0, 100, 200, 100, 40, 140, 240, 140});
  // Weights are 3/8 for the two pixels inside and 1/8 for the two outside; 3/7 and 1/7 at the
  // border.
  EXPECT_EQ(resize_image(shape, image, 2, 2), pixels_of({71, 143, 111, 183}));
  EXPECT_EQ(resize_image(shape, image, 1, 4), pixels_of({20, 120, 220, 120}));
}

TEST(ResizeImage, InterpolatesWhereItGrows) {
  const ImageShape shape{.channels = 2, .height = 1, .width = 2};
  EXPECT_EQ(resize_image(shape, pixels_of({0, 100, 200, 40}), 1, 4),
            pixels_of({0, 25, 75, 100, 200, 160, 80, 40}));
}

TEST(ResizeImage, KeepsOneColorAndOneSize) {
  const ImageShape shape{.channels = 3, .height = 5, .width = 7};
  const Pixels gray(105, std::byte{201});
  EXPECT_EQ(resize_image(shape, gray, 11, 3), Pixels(99, std::byte{201}));
  Pixels image;
  for (const char byte : datasets::testing::some_bytes(105)) {
    image.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_EQ(resize_image(shape, image, 5, 7), image);
  EXPECT_EQ(cover_with_image(shape, image, 5, 7), image);
}

TEST(CoverWithImage, CutsOffWhatIsBesideTheMiddle) {
  const ImageShape wide{.channels = 2, .height = 1, .width = 5};
  EXPECT_EQ(cover_with_image(wide, pixels_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 1, 3),
            pixels_of({2, 3, 4, 7, 8, 9}));
  const ImageShape high{.channels = 1, .height = 4, .width = 1};
  EXPECT_EQ(cover_with_image(high, pixels_of({1, 2, 3, 4}), 1, 1), pixels_of({3}));
}

TEST(ResizeImage, ExplainsImpossibleArguments) {
  const ImageShape shape{.channels = 1, .height = 1, .width = 3};
  const Pixels image(3);
  const CaughtError error = error_of([&] { (void)resize_image(shape, image, 0, 3); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("from 1 x 3 to 0 x 3 pixels (height x width)"));
  EXPECT_THAT(error_of([&] { (void)resize_image(shape, Pixels(2), 1, 3); }).message,
              HasSubstr("2 bytes are not an image of 1 x 1 x 3"));
  // The intermediate image would have 50000 x 150000 pixels.
  EXPECT_THAT(error_of([&] { (void)cover_with_image(shape, image, 50000, 50000); }).message,
              HasSubstr("to 50000 x 150000 pixels"));
}

}  // namespace
}  // namespace unisono::datasets
