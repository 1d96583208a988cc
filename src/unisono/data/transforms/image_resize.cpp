#include "unisono/data/transforms/image_resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/transforms/image_crops.h"

namespace unisono {
namespace {

constexpr std::int64_t kMaxSide = 65536;
constexpr int kWeightBits = 22;

// The pixels of a line that make one pixel of the resized line, and their parts of it, in units of
// 2^-22.
struct Blend {
  std::size_t first = 0;
  std::vector<std::int32_t> weights;
};

// To the bit as Pillow rounds, which takes the sum with 0.5 as it comes.
std::int64_t nearest(double value) {
  return static_cast<std::int64_t>(std::floor(value + 0.5));
}

// Triangles, as wide as two pixels of the line that has fewer of them.
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
      // Multiplied by the inverse, as Pillow does: a division may round otherwise.
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

// One pixel of those that lie `stride` apart from `line` on.
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

// The middle of `n_whole` pixels begins with this one; halves go to the even number, as in Python.
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

}  // namespace unisono
