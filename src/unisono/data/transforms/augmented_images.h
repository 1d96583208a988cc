#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/data/dataset.h"
#include "unisono/data/normalized_images.h"

namespace unisono {

struct AugmentationOptions {
  /// Shift by up to so many pixels; 0: not at all.
  std::int64_t crop_padding = 4;
  /// Turn every other image's left to the right, by chance.
  bool flip = true;
  std::int64_t seed = 0;
};

/// A data set's images (ImageDataset, ImageFolder), each at random a little different in each
/// epoch: cropped with padding and flipped before they are normalized.
///
/// What an image becomes depends on the seed, the epoch and its index, and on nothing else: not on
/// the number of workers or ranks, or on whether an epoch was interrupted.
class AugmentedImages final : public Dataset {
 public:
  explicit AugmentedImages(std::shared_ptr<const NormalizedImages> images,
                           const AugmentationOptions& options = {});

  /// Call before a loader starts the epoch's pass, or every epoch has the same images.
  void set_epoch(std::int64_t epoch) { epoch_.store(epoch, std::memory_order_relaxed); }

  [[nodiscard]] std::int64_t size() const override { return images_->size(); }

  [[nodiscard]] DType dtype() const override { return images_->dtype(); }

  [[nodiscard]] std::vector<std::int64_t> sample_shape() const override {
    return images_->sample_shape();
  }

  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override;

 private:
  std::shared_ptr<const NormalizedImages> images_;  // shared with the caller
  AugmentationOptions options_;
  // Relaxed: a loader's start() orders it before what its workers read.
  std::atomic<std::int64_t> epoch_ = 0;
};

}  // namespace unisono
