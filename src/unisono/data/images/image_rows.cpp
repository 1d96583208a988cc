#include "unisono/data/images/image_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/error.h"

namespace unisono::data {

bool ImageFile::begins_with(std::span<const std::uint8_t> mark) const {
  return bytes.size() >= mark.size() &&
         std::ranges::equal(std::as_bytes(mark), bytes.first(mark.size()));
}

void ImageFile::throw_damaged(const char* format,
                              std::size_t offset,
                              const std::string& problem) const {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: the {} image can't be decoded, near offset {} of {} bytes: {}",
                          name,
                          format,
                          offset,
                          bytes.size(),
                          problem));
}

void ImageFile::check_size(std::int64_t width, std::int64_t height) const {
  // Both formats have numbers of at most 31 bits.
  if (width * height > max_pixels) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: an image of {} x {} pixels (height x width); up to {} pixels are "
                            "read (DecodeOptions::max_pixels)",
                            name,
                            height,
                            width,
                            max_pixels));
  }
}

std::span<std::byte> ImageRows::add_row() {
  pixels.resize(pixels.size() + row_bytes());
  return std::span(pixels).last(row_bytes());
}

}  // namespace unisono::data
