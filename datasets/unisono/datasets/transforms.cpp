#include "unisono/datasets/transforms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/random.h"

namespace unisono::datasets {

Normalize::Normalize(double mean, double std) : table_{} {
  const auto mean_f32 = static_cast<float>(mean);
  const auto std_f32 = static_cast<float>(std);
  if (!std::isfinite(mean_f32) || !std::isfinite(std_f32) || !(std_f32 > 0.0F)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Normalize(mean {}, std {}): mean must be finite, std finite and above "
                            "zero, both as float32",
                            mean,
                            std));
  }
  for (std::size_t pixel = 0; pixel < table_.size(); ++pixel) {
    table_[pixel] = (static_cast<float>(pixel) / 255.0F - mean_f32) / std_f32;
  }
}

void Normalize::apply(std::span<const std::byte> pixels, std::span<float> into) const {
  if (pixels.size() != into.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Normalize: {} pixels for {} floats", pixels.size(), into.size()));
  }
  std::ranges::transform(pixels, into.begin(), std::cref(*this));
}

Normalize mnist_normalize() {
  return {0.1307, 0.3081};
}

namespace {

constexpr std::int64_t kMaxPadding = std::int64_t{1} << 30;

// Draws a number from -padding to padding.
std::int64_t random_shift(std::int64_t padding, data::Random& random) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * padding + 1))) -
         padding;
}

// Shifts one channel: pixel (row, column) of `into` is pixel (row + down, column + right) of
// `image`, or black outside the image.
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

void ImageShape::check(const char* function, std::size_t n_bytes) const {
  if (channels < 1 || height < 1 || width < 1 || static_cast<std::size_t>(n_pixels()) != n_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} bytes are not an image of {} x {} x {}",
                            function,
                            n_bytes,
                            channels,
                            height,
                            width));
  }
}

void random_crop(const ImageShape& shape,
                 std::span<const std::byte> image,
                 std::int64_t padding,
                 data::Random& random,
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

namespace {

constexpr std::int64_t kMaxSide = 65536;
constexpr int kWeightBits = 22;

// The source pixels of one pixel of a resized line, with weights in units of 2^-22.
struct Blend {
  std::size_t first = 0;
  std::vector<std::int32_t> weights;
};

// Rounds halves up, to the bit like Pillow.
std::int64_t nearest(double value) {
  return static_cast<std::int64_t>(std::floor(value + 0.5));
}

// Triangle filters. A triangle is as wide as two pixels of the shorter line.
std::vector<Blend> blends_of(std::int64_t n_from, std::int64_t n_to) {
  const double scale = static_cast<double>(n_from) / static_cast<double>(n_to);
  const double reach = std::max(scale, 1.0);
  std::vector<Blend> blends;
  for (std::int64_t to = 0; to < n_to; ++to) {
    const double center = (static_cast<double>(to) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(nearest(center - reach), 0);
    const auto last = std::min(nearest(center + reach), n_from);
    std::vector<double> parts;
    double sum = 0;
    for (std::int64_t from = first; from < last; ++from) {
      // Pillow multiplies by the inverse. A division may round differently.
      const double distance = std::abs((static_cast<double>(from) - center + 0.5) * (1.0 / reach));
      parts.push_back(std::max(0.0, 1.0 - distance));
      sum += parts.back();
    }
    Blend blend{.first = static_cast<std::size_t>(first), .weights = {}};
    for (const double part : parts) {
      blend.weights.push_back(
          static_cast<std::int32_t>(nearest(part / sum * static_cast<double>(1 << kWeightBits))));
    }
    blends.push_back(std::move(blend));
  }
  return blends;
}

// Computes one pixel of a line with pixels `stride` apart.
std::byte blended(const Blend& blend, const std::byte* line, std::size_t stride) {
  std::int32_t sum = 1 << (kWeightBits - 1);
  const std::byte* from = line + blend.first * stride;
  for (const std::int32_t weight : blend.weights) {
    sum += std::to_integer<std::int32_t>(*from) * weight;
    from += stride;
  }
  return static_cast<std::byte>(std::clamp(sum >> kWeightBits, 0, 255));
}

std::vector<std::byte> resize_rows(const ImageShape& shape,
                                   std::span<const std::byte> image,
                                   std::int64_t width) {
  const std::vector<Blend> blends = blends_of(shape.width, width);
  std::vector<std::byte> result;
  result.reserve(static_cast<std::size_t>(shape.channels * shape.height * width));
  for (std::size_t at = 0; at < image.size(); at += static_cast<std::size_t>(shape.width)) {
    for (const Blend& blend : blends) {
      result.push_back(blended(blend, &image[at], 1));
    }
  }
  return result;
}

std::vector<std::byte> resize_columns(const ImageShape& shape,
                                      std::span<const std::byte> image,
                                      std::int64_t height) {
  const std::vector<Blend> blends = blends_of(shape.height, height);
  const auto n_plane = static_cast<std::size_t>(shape.height * shape.width);
  const auto n_row = static_cast<std::size_t>(shape.width);
  std::vector<std::byte> result;
  result.reserve(static_cast<std::size_t>(shape.channels * height * shape.width));
  for (std::size_t plane = 0; plane < image.size(); plane += n_plane) {
    for (const Blend& blend : blends) {
      for (std::size_t column = 0; column < n_row; ++column) {
        result.push_back(blended(blend, &image[plane + column], n_row));
      }
    }
  }
  return result;
}

void check_arguments(const ImageShape& shape,
                     std::size_t n_bytes,
                     std::int64_t height,
                     std::int64_t width) {
  for (const std::int64_t side : {shape.height, shape.width, height, width}) {
    if (side < 1 || side > kMaxSide) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("resize_image: from {} x {} to {} x {} pixels (height x width); 1 to "
                              "{} are possible",
                              shape.height,
                              shape.width,
                              height,
                              width,
                              kMaxSide));
    }
  }
  shape.check("resize_image", n_bytes);
}

// Index of the first pixel of the center of `n_whole` pixels. Halves round to even, as in Python.
std::int64_t middle_of(std::int64_t n_whole, std::int64_t n_part) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(n_whole - n_part) / 2));
}

}  // namespace

std::vector<std::byte> resize_image(const ImageShape& shape,
                                    std::span<const std::byte> image,
                                    std::int64_t height,
                                    std::int64_t width) {
  check_arguments(shape, image.size(), height, width);
  std::vector<std::byte> resized(image.begin(), image.end());
  if (width != shape.width) {
    resized = resize_rows(shape, resized, width);
  }
  if (height != shape.height) {
    resized = resize_columns(
        {.channels = shape.channels, .height = shape.height, .width = width}, resized, height);
  }
  return resized;
}

std::vector<std::byte> cover_with_image(const ImageShape& shape,
                                        std::span<const std::byte> image,
                                        std::int64_t height,
                                        std::int64_t width) {
  check_arguments(shape, image.size(), height, width);
  ImageShape covering{.channels = shape.channels, .height = height, .width = width};
  if (height * shape.width >= width * shape.height) {
    covering.width = height * shape.width / shape.height;
  } else {
    covering.height = width * shape.height / shape.width;
  }
  const std::vector<std::byte> resized =
      resize_image(shape, image, covering.height, covering.width);
  const std::int64_t top = middle_of(covering.height, height);
  const std::int64_t left = middle_of(covering.width, width);
  std::vector<std::byte> result;
  result.reserve(static_cast<std::size_t>(shape.channels * height * width));
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t row = 0; row < height; ++row) {
      const auto from =
          resized.begin() + ((channel * covering.height + top + row) * covering.width + left);
      result.insert(result.end(), from, from + width);
    }
  }
  return result;
}

}  // namespace unisono::datasets
