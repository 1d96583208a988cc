#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/random.h"

namespace unisono::datasets {

/// Converts the byte of a pixel to float: byte / 255, minus mean, divided by std, each step rounded
/// to float32. The bits equal those of torchvision's ToTensor and Normalize(mean, std).
class Normalize {
 public:
  /// Throws Error(kInvalidArgument) unless mean and std are finite and std is above zero.
  Normalize(double mean, double std);

  [[nodiscard]] float operator()(std::byte pixel) const {
    return table_[std::to_integer<std::size_t>(pixel)];
  }

  /// Normalizes `pixels` into `into`, which has the same length.
  ///
  /// Throws Error(kInvalidArgument) for different lengths.
  void apply(std::span<const std::byte> pixels, std::span<float> into) const;

 private:
  std::array<float, 256> table_;
};

/// The usual normalization of MNIST: Normalize(0.1307, 0.3081).
[[nodiscard]] Normalize mnist_normalize();

/// Dimensions of an image. The pixels lie channel after channel, row by row.
struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;

  [[nodiscard]] std::int64_t n_pixels() const { return channels * height * width; }

  /// Throws Error(kInvalidArgument), which names `function`, unless an image of this shape
  /// has `n_bytes`.
  void check(const char* function, std::size_t n_bytes) const;
};

/// Shifts an image by up to `padding` pixels in both directions and fills the border with black: a
/// random crop of the image with `padding` black pixels on each side.
///
/// Draws two numbers from `random`. Throws Error(kInvalidArgument) unless both spans have
/// n_pixels() bytes and 0 <= padding <= 2^30.
void random_crop(const ImageShape& shape,
                 std::span<const std::byte> image,
                 std::int64_t padding,
                 data::Random& random,
                 std::span<std::byte> into);

/// Mirrors an image from left to right, in place.
///
/// Throws Error(kInvalidArgument) unless `image` has n_pixels() bytes.
void flip_horizontally(const ImageShape& shape, std::span<std::byte> image);

/// Resizes an image to `height` x `width` pixels. The bits equal those of Pillow 12's resize() with
/// BILINEAR, which averages all covered pixels when an image shrinks. Rows are resized first; later
/// releases of Pillow resize columns first if an image becomes wider and lower.
///
/// Throws Error(kInvalidArgument) unless `image` has n_pixels() bytes, and for a height or width
/// below 1 or above 65536.
[[nodiscard]] std::vector<std::byte> resize_image(const ImageShape& shape,
                                                  std::span<const std::byte> image,
                                                  std::int64_t height,
                                                  std::int64_t width);

/// Resizes an image until the image covers `height` x `width` pixels, and crops the center. For
/// equal height and width the result equals that of torchvision's Resize and CenterCrop.
///
/// Throws as resize_image().
[[nodiscard]] std::vector<std::byte> cover_with_image(const ImageShape& shape,
                                                      std::span<const std::byte> image,
                                                      std::int64_t height,
                                                      std::int64_t width);

}  // namespace unisono::datasets
