#include "unisono/datasets/image_dataset.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/transforms.h"

#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
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

constexpr std::int64_t kImages = 60;

std::shared_ptr<const ImageDataset> images() {
  constexpr std::size_t kImagePixels = std::size_t{3} * 8 * 8;
  LabeledImages images{.channels = 3, .height = 8, .width = 8, .pixels = {}, .labels = {}};
  for (const char value : datasets::testing::some_bytes(kImages * kImagePixels)) {
    images.pixels.push_back(static_cast<std::byte>(value));
  }
  for (std::int64_t index = 0; index < kImages; ++index) {
    images.labels.push_back(static_cast<std::byte>(index));
  }
  return std::make_shared<ImageDataset>(images, Normalize(0.5, 0.5));
}

using Samples = std::map<std::int64_t, std::vector<float>>;

// All images of an epoch, by label.
Samples load_epoch(std::int64_t epoch,
                   int num_workers,
                   int num_replicas = 1,
                   const AugmentationOptions& options = {.crop_padding = 2}) {
  const auto augmented = std::make_shared<AugmentedImages>(images(), options);
  augmented->set_epoch(epoch);
  DataLoader loader(augmented, {.batch_size = 7, .num_workers = num_workers});
  Samples samples;
  for (int rank = 0; rank < num_replicas; ++rank) {
    DistributedSampler sampler(kImages, num_replicas, rank);
    sampler.set_epoch(epoch);
    loader.start(sampler);
    while (const std::optional<data::Batch> batch = loader.next()) {
      const std::size_t n_values = batch->values<float>().size() / batch->labels().size();
      for (std::size_t place = 0; place < batch->labels().size(); ++place) {
        const auto values = batch->values<float>().subspan(place * n_values, n_values);
        samples[batch->labels()[place]] = {values.begin(), values.end()};
      }
    }
  }
  return samples;
}

TEST(AugmentedImages, AreTheSameForAnyNumberOfWorkersAndReplicas) {
  const Samples expected = load_epoch(3, 0);
  EXPECT_EQ(expected.size(), static_cast<std::size_t>(kImages));
  EXPECT_EQ(load_epoch(3, 1), expected);
  EXPECT_EQ(load_epoch(3, 4), expected);
  EXPECT_EQ(load_epoch(3, 2, 5), expected);
}

TEST(AugmentedImages, DifferByEpochAndSeed) {
  const Samples first = load_epoch(0, 0);
  EXPECT_NE(load_epoch(1, 0), first);
  EXPECT_NE(load_epoch(0, 0, 1, {.crop_padding = 2, .seed = 1}), first);
  EXPECT_EQ(load_epoch(0, 0), first);
}

TEST(AugmentedImages, HalfOfThemAreFlipped) {
  const Samples plain = load_epoch(0, 0, 1, {.crop_padding = 0, .flip = false});
  const Samples flipped = load_epoch(0, 0, 1, {.crop_padding = 0, .flip = true});
  std::int64_t n_flipped = 0;
  for (const auto& [label, sample] : plain) {
    n_flipped += flipped.at(label) == sample ? 0 : 1;
  }
  EXPECT_GT(n_flipped, kImages / 4);
  EXPECT_LT(n_flipped, 3 * kImages / 4);
}

TEST(AugmentedImages, WithoutChangesAreTheImages) {
  const Samples plain = load_epoch(0, 0, 1, {.crop_padding = 0, .flip = false});
  const auto originals = images();
  std::vector<float> sample(std::size_t{3} * 8 * 8);
  for (std::int64_t index = 0; index < kImages; ++index) {
    EXPECT_EQ(originals->load(index, std::as_writable_bytes(std::span(sample))), index);
    EXPECT_EQ(plain.at(index), sample);
  }
}

}  // namespace
}  // namespace unisono::datasets
