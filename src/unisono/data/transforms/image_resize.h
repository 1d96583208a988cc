#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/transforms/image_crops.h"

namespace unisono {

/// An image of `height` x `width` pixels made of another one, to the bit as Pillow 12's resize()
/// with BILINEAR does it: where it becomes smaller, of all pixels that lie within. Rows first;
/// later Pillows take columns first where an image becomes both wider and lower.
///
/// Throws Error(kInvalidArgument) when `image` has not n_pixels() bytes, or for a height or width
/// below 1 or above 65536.
[[nodiscard]] std::vector<std::byte> resize_image(const ImageShape& shape,
                                                  std::span<const std::byte> image,
                                                  std::int64_t height,
                                                  std::int64_t width);

/// An image resized so that it just covers `height` x `width` pixels, and of that the middle: where
/// both are equal, torchvision's Resize and CenterCrop.
///
/// Throws as resize_image().
[[nodiscard]] std::vector<std::byte> cover_with_image(const ImageShape& shape,
                                                      std::span<const std::byte> image,
                                                      std::int64_t height,
                                                      std::int64_t width);

}  // namespace unisono
