#include "unisono/data/transforms/image_crops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/base/error.h"
#include "unisono/data/random.h"

namespace unisono {
namespace {

constexpr std::int64_t kMaxPadding = std::int64_t{1} << 30;

// From -padding to padding.
std::int64_t random_shift(std::int64_t padding, Random& random) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * padding + 1))) -
         padding;
}

// One channel: pixel (row, column) of `into` is (row + down, column + right) of `image`, or black.
void copy_shifted(const ImageShape& shape,
                  std::span<const std::byte> image,
                  std::int64_t down,
                  std::int64_t right,
                  std::span<std::byte> into) {
  const std::int64_t first = std::clamp<std::int64_t>(-right, 0, shape.width);
  const std::int64_t last = std::clamp<std::int64_t>(shape.width - right, first, shape.width);
  std::ranges::fill(into, std::byte{0});
  for (std::int64_t row = 0; row < shape.height; ++row) {
    const std::int64_t from_row = row + down;
    if (from_row < 0 || from_row >= shape.height || first == last) {
      continue;
    }
    const auto from =
        image.subspan(static_cast<std::size_t>(from_row * shape.width + first + right),
                      static_cast<std::size_t>(last - first));
    std::ranges::copy(from, into.begin() + (row * shape.width + first));
  }
}

}  // namespace

void ImageShape::check(const char* who, std::size_t n_bytes) const {
  if (channels < 1 || height < 1 || width < 1 || static_cast<std::size_t>(n_pixels()) != n_bytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: {} bytes are no image of {} x {} x {}", who, n_bytes, channels, height, width));
  }
}

void random_crop(const ImageShape& shape,
                 std::span<const std::byte> image,
                 std::int64_t padding,
                 Random& random,
                 std::span<std::byte> into) {
  shape.check("random_crop", image.size());
  shape.check("random_crop", into.size());
  if (padding < 0 || padding > kMaxPadding) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("random_crop: padding is {}; 0 to {} are possible", padding, kMaxPadding));
  }
  const std::int64_t down = random_shift(padding, random);
  const std::int64_t right = random_shift(padding, random);
  const auto n_plane = static_cast<std::size_t>(shape.height * shape.width);
  for (std::size_t at = 0; at < image.size(); at += n_plane) {
    copy_shifted(shape, image.subspan(at, n_plane), down, right, into.subspan(at, n_plane));
  }
}

void flip_horizontally(const ImageShape& shape, std::span<std::byte> image) {
  shape.check("flip_horizontally", image.size());
  const auto n_row = static_cast<std::size_t>(shape.width);
  for (std::size_t at = 0; at < image.size(); at += n_row) {
    std::ranges::reverse(image.subspan(at, n_row));
  }
}

}  // namespace unisono
