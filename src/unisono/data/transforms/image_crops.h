#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/data/random.h"

namespace unisono {

/// An image's dimensions; its pixels lie channel after channel, row by row.
struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;

  [[nodiscard]] std::int64_t n_pixels() const { return channels * height * width; }

  /// Throws Error(kInvalidArgument), as coming from `who`, unless an image of this shape has
  /// `n_bytes`.
  void check(const char* who, std::size_t n_bytes) const;
};

/// Copies a random part of an image, as large as the image, out of the image with `padding` black
/// pixels on each side: shifts it by up to `padding` pixels.
///
/// Takes two numbers of `random`. Throws Error(kInvalidArgument) when a span has not n_pixels()
/// bytes, or `padding` is negative or beyond 2^30.
void random_crop(const ImageShape& shape,
                 std::span<const std::byte> image,
                 std::int64_t padding,
                 Random& random,
                 std::span<std::byte> into);

/// Turns an image's left side to the right, in place.
///
/// Throws Error(kInvalidArgument) when `image` has not n_pixels() bytes.
void flip_horizontally(const ImageShape& shape, std::span<std::byte> image);

}  // namespace unisono
