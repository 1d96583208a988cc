#include "unisono/data/transforms/image_crops.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::HasSubstr;
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

// The image shifted by hand.
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
  Random random(3);
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
  Random random(3);
  random_crop(kShape, image, 0, random, crop);
  EXPECT_EQ(crop, image);
}

TEST(RandomCrop, HugePaddingLeavesBlackImages) {
  const Pixels image = numbered(kShape);
  Pixels crop(image.size(), std::byte{0xff});
  Random random(3);
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
  Random random(0);
  const CaughtError error = error_of([&] { random_crop(kShape, image, 1, random, small); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("3 bytes are no image of 2 x 3 x 4"));
  EXPECT_THAT(error_of([&] { random_crop(kShape, small, 1, random, image); }).message,
              HasSubstr("3 bytes"));
  EXPECT_THAT(error_of([&] { random_crop(kShape, image, -1, random, image); }).message,
              HasSubstr("padding is -1"));
  EXPECT_THAT(error_of([&] { flip_horizontally(kShape, small); }).message, HasSubstr("3 bytes"));
}

}  // namespace
}  // namespace unisono
