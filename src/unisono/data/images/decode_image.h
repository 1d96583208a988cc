#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/data/transforms/image_crops.h"

namespace unisono {

struct DecodeOptions {
  /// 3: red, green, blue; 1: gray. Images of the other kind are converted.
  std::int64_t channels = 3;
  /// A few bytes can say that they are a huge image: a larger one is an error.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

struct DecodedImage {
  ImageShape shape;
  std::vector<std::byte> pixels;  ///< Channel after channel, row by row.
};

/// Decodes a JPEG or PNG image, which its content tells; `name` says in errors where it is from.
///
/// The pixels are those of Pillow's convert("RGB"), or "L" where gray is asked for: transparency,
/// color profiles and EXIF's orientation are left aside, CMYK is turned to RGB, and of 16 bits the
/// upper 8 are taken. Thread-safe.
///
/// Throws Error: kInvalidArgument for impossible options; kCorruptData, with the offset near which
/// it was noticed, for what is neither JPEG nor PNG, is damaged, ends early, or is too large.
[[nodiscard]] DecodedImage decode_image(std::span<const std::byte> file,
                                        const std::string& name,
                                        const DecodeOptions& options = {});

/// Decodes an image file of up to 1 GiB.
///
/// Throws Error as decode_image(), and kNotFound, kSystem; kInvalidArgument for a folder or device.
[[nodiscard]] DecodedImage read_image(const std::string& path, const DecodeOptions& options = {});

}  // namespace unisono
