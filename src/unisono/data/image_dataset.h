#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/normalized_images.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

/// Images of one size in memory, a byte a pixel and channel, each with a label.
struct LabeledImages {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::byte> pixels;  ///< Image after image, in each channel after channel, row by row.
  std::vector<std::byte> labels;  ///< A byte per image.

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }

  /// The pixels of image `index`, which must be below size().
  [[nodiscard]] std::span<const std::byte> image(std::int64_t index) const;

  /// The label of image `index`, which must be below size().
  [[nodiscard]] std::int64_t label(std::int64_t index) const;
};

/// Images in memory as a network takes them: float32 of shape {channels, height, width},
/// normalized.
class ImageDataset final : public NormalizedImages {
 public:
  /// Throws Error(kInvalidArgument) when there are not channels * height * width pixels per label.
  ImageDataset(LabeledImages images, const Normalize& normalize);

  /// With a Normalize for each channel, or it throws Error(kInvalidArgument), too.
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

}  // namespace unisono
