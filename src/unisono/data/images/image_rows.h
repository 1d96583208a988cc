#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono::data {

/// An image file that is being decoded.
struct ImageFile {
  std::span<const std::byte> bytes;
  const std::string& name;
  std::int64_t max_pixels;

  [[nodiscard]] bool begins_with(std::span<const std::uint8_t> mark) const;

  /// Throws Error(kCorruptData) with `problem`, and where it was noticed.
  [[noreturn]] void throw_damaged(const char* format,
                                  std::size_t offset,
                                  const std::string& problem) const;

  /// Throws Error(kCorruptData) when that is more than max_pixels.
  void check_size(std::int64_t width, std::int64_t height) const;
};

/// Pixels as image files have them: row by row, a byte for each of a pixel's channels.
struct ImageRows {
  std::int64_t channels = 0;  ///< 1: gray, 3: red, green, blue
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::byte> pixels;

  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(channels * width); }

  /// Memory for one more row, so that it grows only as rows come. Ends the life of the last one's.
  [[nodiscard]] std::span<std::byte> add_row();
};

}  // namespace unisono::data
