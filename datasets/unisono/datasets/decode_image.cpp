#include "unisono/datasets/decode_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/datasets/image_codecs.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {

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

namespace {

constexpr std::uint64_t kMaxImageBytes = std::uint64_t{1} << 30;

void check_options(const DecodeOptions& options) {
  if ((options.channels != 1 && options.channels != 3) || options.max_pixels < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("DecodeOptions: channels {}, max_pixels {}; channels must be 1 (gray) "
                            "or 3 (RGB), max_pixels at least 1",
                            options.channels,
                            options.max_pixels));
  }
}

// Names the probable format of another file by its first bytes.
std::string guess_format(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) {
    return "it is empty";
  }
  for (const auto& [mark, format] : {std::pair("GIF8", "GIF"),
                                     std::pair("BM", "BMP"),
                                     std::pair("RIFF", "WebP"),
                                     std::pair("II*", "TIFF"),
                                     std::pair("MM", "TIFF"),
                                     std::pair("<", "text")}) {
    if (text.starts_with(mark)) {
      return fmt::format("it may be {}", format);
    }
  }
  std::string first;
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 4))) {
    first += fmt::format(" {:02x}", std::to_integer<unsigned>(byte));
  }
  return fmt::format("it begins with{}", first);
}

ImageRows decode_rows(const ImageFile& file) {
  if (is_jpeg(file)) {
    return decode_jpeg(file);
  }
  if (is_png(file)) {
    return decode_png(file);
  }
  throw Error(
      ErrorCode::kCorruptData,
      fmt::format(
          "{}: is neither a JPEG nor a PNG image: {}", file.name, guess_format(file.bytes)));
}

// Luma of ITU-R BT.601-2 in units of 2^-16, as in Pillow.
std::byte gray_of(const std::byte* rgb) {
  const auto red = std::to_integer<std::uint32_t>(rgb[0]);
  const auto green = std::to_integer<std::uint32_t>(rgb[1]);
  const auto blue = std::to_integer<std::uint32_t>(rgb[2]);
  return static_cast<std::byte>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

std::vector<std::byte> planes_of(ImageRows rows, std::int64_t channels) {
  const auto n_pixels = static_cast<std::size_t>(rows.width * rows.height);
  if (rows.channels == channels && channels == 1) {
    return std::move(rows.pixels);
  }
  std::vector<std::byte> planes(n_pixels * static_cast<std::size_t>(channels));
  for (std::size_t pixel = 0; pixel < n_pixels; ++pixel) {
    if (rows.channels == 1) {
      planes[pixel] = planes[n_pixels + pixel] = planes[2 * n_pixels + pixel] = rows.pixels[pixel];
      continue;
    }
    const std::byte* const rgb = &rows.pixels[3 * pixel];
    if (channels == 1) {
      planes[pixel] = gray_of(rgb);
    } else {
      planes[pixel] = rgb[0];
      planes[n_pixels + pixel] = rgb[1];
      planes[2 * n_pixels + pixel] = rgb[2];
    }
  }
  return planes;
}

}  // namespace

DecodedImage decode_image(std::span<const std::byte> file,
                          const std::string& name,
                          const DecodeOptions& options) {
  check_options(options);
  check_no_placeholder(name, file);
  ImageRows rows = decode_rows({.bytes = file, .name = name, .max_pixels = options.max_pixels});
  const ImageShape shape{.channels = options.channels, .height = rows.height, .width = rows.width};
  return {.shape = shape, .pixels = planes_of(std::move(rows), options.channels)};
}

DecodedImage read_image(const std::string& path, const DecodeOptions& options) {
  RegularFile file(path);
  if (file.n_bytes() > kMaxImageBytes) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "{}: has {} bytes; images of up to {} are read", path, file.n_bytes(), kMaxImageBytes));
  }
  std::vector<std::byte> bytes(file.n_bytes());
  bytes.resize(file.read(bytes));
  return decode_image(bytes, path, options);
}

}  // namespace unisono::datasets
