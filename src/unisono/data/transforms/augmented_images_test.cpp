#include "unisono/data/transforms/augmented_images.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {
namespace {

constexpr std::int64_t kImages = 60;

std::shared_ptr<const ImageDataset> images() {
  constexpr std::size_t kPixels = std::size_t{3} * 8 * 8;
  LabeledImages images{.channels = 3, .height = 8, .width = 8, .pixels = {}, .labels = {}};
  for (const char value : data::testing::some_bytes(kImages * kPixels)) {
    images.pixels.push_back(static_cast<std::byte>(value));
  }
  for (std::int64_t index = 0; index < kImages; ++index) {
    images.labels.push_back(static_cast<std::byte>(index));
  }
  return std::make_shared<ImageDataset>(images, Normalize(0.5, 0.5));
}

using Samples = std::map<std::int64_t, std::vector<float>>;

// All images of one epoch, by label.
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
    while (const std::optional<Batch> batch = loader.next()) {
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
}  // namespace unisono
