#pragma once

#include <cstdint>
#include <string>

namespace unisono::data::testing {

/// A PNG file to be; `pixels` are rows as the format has them, each from a byte's beginning.
struct PngImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int bit_depth = 8;
  int color_type = 2;  ///< 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGB and alpha
  bool interlaced = false;
  std::string palette = {};  ///< RGB, RGB, ...
  std::string pixels = {};
};

[[nodiscard]] std::string png_bytes(const PngImage& image);

/// A JPEG file to be; `pixels` are row by row, a byte for each of a pixel's components.
struct JpegImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int components = 3;  ///< 1 gray, 3 RGB, 4 CMYK as Adobe writes it, 255 for no ink
  int quality = 90;
  bool progressive = false;
  /// Above 0, of gray images: a scan for each coefficient, and one for each of so many of its bits.
  int scans_per_coefficient = 0;
  std::string pixels = {};
};

[[nodiscard]] std::string jpeg_bytes(const JpegImage& image);

}  // namespace unisono::data::testing
