#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/data/batch.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {

/// Base of data sets of images of one shape. A sample is a normalized image: float32 of shape
/// {channels, height, width}.
class NormalizedImages : public data::Dataset {
 public:
  [[nodiscard]] const ImageShape& shape() const { return shape_; }

  /// Writes the pixels of image `index`, 0 <= index < size(), channel after channel, row by row,
  /// into `into`, which has shape().n_pixels() bytes. Returns the label of the image.
  ///
  /// Several threads call this function concurrently, like load().
  [[nodiscard]] virtual std::int64_t load_pixels(std::int64_t index,
                                                 std::span<std::byte> into) const = 0;

  /// Normalizes the pixels of an image of this shape into the memory of a sample.
  void normalize(std::span<const std::byte> image, std::span<std::byte> into) const;

  [[nodiscard]] DType dtype() const override { return DType::kFloat32; }

  [[nodiscard]] std::vector<std::int64_t> sample_shape() const override;

  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override;

 protected:
  /// `normalize` has one element per channel; errors begin with `class_name`.
  ///
  /// Throws Error(kInvalidArgument) for less than 1 or more than 1024 channels, or another number
  /// of elements.
  NormalizedImages(const char* class_name,
                   const ImageShape& shape,
                   std::vector<Normalize> normalize);

 private:
  ImageShape shape_;
  std::vector<Normalize> normalize_;  // by channel
};

/// Labeled images of one size in memory, a byte for each channel of a pixel.
struct LabeledImages {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::byte> pixels;  ///< Image after image, in each channel after channel, row by row.
  std::vector<std::byte> labels;  ///< A byte per image.

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }

  /// Pixels of image `index`, 0 <= index < size().
  [[nodiscard]] std::span<const std::byte> image(std::int64_t index) const;

  /// Label of image `index`, 0 <= index < size().
  [[nodiscard]] std::int64_t label(std::int64_t index) const;
};

/// Images in memory as a data set of normalized images. Thread-safe.
class ImageDataset final : public NormalizedImages {
 public:
  /// Uses one Normalize for all channels.
  ///
  /// Throws Error(kInvalidArgument) unless there are channels * height * width pixels per label.
  ImageDataset(LabeledImages images, const Normalize& normalize);

  /// Uses a Normalize for each channel. Throws Error(kInvalidArgument) as above, and for another
  /// number of elements.
  ImageDataset(LabeledImages images, std::vector<Normalize> normalize);

  [[nodiscard]] std::int64_t size() const override { return images_.size(); }

  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override;

  [[nodiscard]] std::int64_t load_pixels(std::int64_t index,
                                         std::span<std::byte> into) const override;

  [[nodiscard]] const LabeledImages& images() const { return images_; }

 private:
  void check() const;

  LabeledImages images_;
};

/// Random changes of an image. `seed` selects the sequence of changes.
struct AugmentationOptions {
  /// Limit of the shift in pixels; 0: no shift.
  std::int64_t crop_padding = 4;
  /// Mirrors half of the images, chosen at random.
  bool flip = true;
  std::int64_t seed = 0;
};

/// The images of an ImageDataset or ImageFolder with random changes in each epoch: a crop with
/// padding and a flip before the normalization.
///
/// The changes depend on the seed, the epoch and the index of the image alone: the number of
/// workers or ranks and an interruption of the epoch make no difference. Thread-safe.
class AugmentedImages final : public data::Dataset {
 public:
  /// Shares the images with the caller.
  explicit AugmentedImages(std::shared_ptr<const NormalizedImages> images,
                           const AugmentationOptions& options = {});

  /// Selects the changes of this epoch. Call before the loader starts the pass of the epoch.
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
  // Relaxed: the loader's start() orders the store before the loads of the workers.
  std::atomic<std::int64_t> epoch_ = 0;
};

}  // namespace unisono::datasets
