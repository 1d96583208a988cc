#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/data/dataset.h"
#include "unisono/data/transforms/image_crops.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

/// Images of one shape, a byte a pixel and channel, that a network takes as normalized floats: what
/// load() gives is float32 of shape {channels, height, width}.
class NormalizedImages : public Dataset {
 public:
  [[nodiscard]] const ImageShape& shape() const { return shape_; }

  /// Writes the pixels of image `index`, 0 <= index < size(), channel after channel, row by row,
  /// into all of `into`, which has shape().n_pixels() bytes, and returns its label.
  ///
  /// Called by several threads at once, as load().
  [[nodiscard]] virtual std::int64_t load_pixels(std::int64_t index,
                                                 std::span<std::byte> into) const = 0;

  /// Normalizes the pixels of one image, which may be a changed one, into a sample's memory.
  void normalize(std::span<const std::byte> image, std::span<std::byte> into) const;

  [[nodiscard]] DType dtype() const override { return DType::kFloat32; }

  [[nodiscard]] std::vector<std::int64_t> sample_shape() const override;

  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override;

 protected:
  /// One Normalize for all channels, or one for each.
  ///
  /// Throws Error(kInvalidArgument), as coming from `who`, for no or very many channels, or another
  /// number of Normalizes.
  NormalizedImages(const char* who, const ImageShape& shape, std::vector<Normalize> normalize);

 private:
  ImageShape shape_;
  std::vector<Normalize> normalize_;  // by channel
};

}  // namespace unisono
