#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/datasets/transforms.h"

namespace unisono::datasets {

/// Form and limit of a decoded image.
struct DecodeOptions {
  /// 3: red, green, blue; 1: gray. Other images are converted.
  std::int64_t channels = 3;
  /// A larger image is an error: a few bytes of a header can claim a huge image.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

/// Pixels of one image.
struct DecodedImage {
  ImageShape shape;
  std::vector<std::byte> pixels;  ///< Channel after channel, row by row.
};

/// Decodes a JPEG or PNG image. The content decides the format; errors show `name` as the source.
///
/// The pixels equal Pillow's convert("RGB"), or convert("L") for one channel: transparency, color
/// profiles and EXIF orientation are ignored, CMYK becomes RGB, and 16-bit samples keep the upper 8
/// bits. Thread-safe.
///
/// Throws Error: kInvalidArgument for impossible options; kCorruptData, with the approximate
/// offset, for another format, for a damaged or truncated image, and for too many pixels.
[[nodiscard]] DecodedImage decode_image(std::span<const std::byte> file,
                                        const std::string& name,
                                        const DecodeOptions& options = {});

/// Decodes an image file of up to 1 GiB.
///
/// Throws Error as decode_image(), and kNotFound, kSystem; kInvalidArgument for a folder or device.
[[nodiscard]] DecodedImage read_image(const std::string& path, const DecodeOptions& options = {});

}  // namespace unisono::datasets
