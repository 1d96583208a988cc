#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono::datasets {

/// The input of a decoder.
struct ImageFile {
  std::span<const std::byte> bytes;
  const std::string& name;
  std::int64_t max_pixels;

  [[nodiscard]] bool begins_with(std::span<const std::uint8_t> mark) const;

  /// Throws Error(kCorruptData) with `problem` and the offset.
  [[noreturn]] void throw_damaged(const char* format,
                                  std::size_t offset,
                                  const std::string& problem) const;

  /// Throws Error(kCorruptData) for more than max_pixels.
  void check_size(std::int64_t width, std::int64_t height) const;
};

/// The output of a decoder: pixels row by row, a byte for each channel of a pixel.
struct ImageRows {
  std::int64_t channels = 0;  ///< 1: gray, 3: red, green, blue
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::byte> pixels;

  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(channels * width); }

  /// Memory for one more row, so that memory grows only with decoded rows. Invalidates the span of
  /// the previous row.
  [[nodiscard]] std::span<std::byte> add_row();
};

/// True if the content begins as a JPEG file.
[[nodiscard]] bool is_jpeg(const ImageFile& file);

/// Decodes a JPEG file. Throws Error(kCorruptData).
[[nodiscard]] ImageRows decode_jpeg(const ImageFile& file);

/// True if the content begins as a PNG file.
[[nodiscard]] bool is_png(const ImageFile& file);

/// Decodes a PNG file. Throws Error(kCorruptData).
[[nodiscard]] ImageRows decode_png(const ImageFile& file);

}  // namespace unisono::datasets
