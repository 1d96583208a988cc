#include "unisono/data/transforms/image_resize.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/transforms/image_crops.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::HasSubstr;
using Pixels = std::vector<std::byte>;

Pixels pixels_of(const std::vector<int>& values) {
  Pixels pixels;
  for (const int value : values) {
    pixels.push_back(static_cast<std::byte>(value));
  }
  return pixels;
}

// tests/data_python compares with Pillow's.
TEST(ResizeImage, AveragesWhereItShrinks) {
  const ImageShape shape{.channels = 1, .height = 2, .width = 4};
  const Pixels image = pixels_of({0, 100, 200, 100, 40, 140, 240, 140});
  // Each pixel is 3/8 of the two within it, and 1/8 of those beside; at the border 3/7 and 1/7.
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
  for (const char byte : data::testing::some_bytes(105)) {
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
              HasSubstr("2 bytes are no image of 1 x 1 x 3"));
  // It would have to become 50000 x 150000 pixels first.
  EXPECT_THAT(error_of([&] { (void)cover_with_image(shape, image, 50000, 50000); }).message,
              HasSubstr("to 50000 x 150000 pixels"));
}

}  // namespace
}  // namespace unisono
