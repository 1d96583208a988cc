#include "unisono/data/image_dataset.h"

#include <array>
#include <cstddef>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LabeledImages two_images() {
  return {.height = 1,
          .width = 2,
          .pixels = {std::byte{0}, std::byte{255}, std::byte{51}, std::byte{102}},
          .labels = {std::byte{3}, std::byte{7}}};
}

TEST(ImageDataset, LoadsNormalizedFloatsAndTheLabel) {
  const ImageDataset dataset(two_images(), Normalize(0.0, 1.0));
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.dtype(), DType::kFloat32);
  EXPECT_THAT(dataset.sample_shape(), ElementsAre(1, 1, 2));

  std::array<float, 2> sample{};
  EXPECT_EQ(dataset.load(1, std::as_writable_bytes(std::span(sample))), 7);
  EXPECT_THAT(sample, ElementsAre(0.2F, 0.4F));
  EXPECT_EQ(dataset.load(0, std::as_writable_bytes(std::span(sample))), 3);
  EXPECT_THAT(sample, ElementsAre(0.0F, 1.0F));
}

TEST(ImageDataset, NeedsANormalizeForEachChannel) {
  const CaughtError error =
      error_of([] { (void)ImageDataset(two_images(), {Normalize(0, 1), Normalize(0, 1)}); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("a Normalize for 2 channels, but the images have 1"));
  LabeledImages images = two_images();
  images.channels = 0;
  EXPECT_THAT(error_of([&] { (void)ImageDataset(images, Normalize(0, 1)); }).message,
              HasSubstr("images of 0 channels"));
}

TEST(ImageDataset, RejectsPixelsThatAreNoImagesOfThatSize) {
  LabeledImages images = two_images();
  images.width = 3;
  EXPECT_EQ(error_of([&] { (void)ImageDataset(images, mnist_normalize()); }).code,
            ErrorCode::kInvalidArgument);
  images.width = 0;
  EXPECT_EQ(error_of([&] { (void)ImageDataset(images, mnist_normalize()); }).code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace unisono
