#include "unisono/data/image_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/normalized_images.h"
#include "unisono/data/transforms/image_crops.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

namespace {

ImageShape shape_of(const LabeledImages& images) {
  return {.channels = images.channels, .height = images.height, .width = images.width};
}

// As many as there are channels; none where that can't be, which NormalizedImages says.
std::vector<Normalize> for_each_channel(const LabeledImages& images, const Normalize& normalize) {
  constexpr std::int64_t kMostThatAreMade = 1024;
  const bool can_be = images.channels >= 0 && images.channels <= kMostThatAreMade;
  return {can_be ? static_cast<std::size_t>(images.channels) : 0, normalize};
}

}  // namespace

std::span<const std::byte> LabeledImages::image(std::int64_t index) const {
  const auto n_pixels = static_cast<std::size_t>(channels * height * width);
  return std::span(pixels).subspan(static_cast<std::size_t>(index) * n_pixels, n_pixels);
}

std::int64_t LabeledImages::label(std::int64_t index) const {
  return std::to_integer<std::int64_t>(labels[static_cast<std::size_t>(index)]);
}

ImageDataset::ImageDataset(LabeledImages images, const Normalize& normalize)
    : NormalizedImages("ImageDataset", shape_of(images), for_each_channel(images, normalize)),
      images_(std::move(images)) {
  check();
}

ImageDataset::ImageDataset(LabeledImages images, std::vector<Normalize> normalize)
    : NormalizedImages("ImageDataset", shape_of(images), std::move(normalize)),
      images_(std::move(images)) {
  check();
}

void ImageDataset::check() const {
  std::int64_t n_pixels = 0;
  if (images_.height < 1 || images_.width < 1 ||
      __builtin_mul_overflow(images_.height, images_.width, &n_pixels) ||
      __builtin_mul_overflow(n_pixels, images_.channels, &n_pixels) ||
      __builtin_mul_overflow(n_pixels, images_.size(), &n_pixels) ||
      static_cast<std::size_t>(n_pixels) != images_.pixels.size()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("ImageDataset: {} pixels are not {} images (one per label) of {} x {} x {}",
                    images_.pixels.size(),
                    images_.size(),
                    images_.channels,
                    images_.height,
                    images_.width));
  }
}

std::int64_t ImageDataset::load(std::int64_t index, std::span<std::byte> into) const {
  normalize(images_.image(index), into);
  return images_.label(index);
}

std::int64_t ImageDataset::load_pixels(std::int64_t index, std::span<std::byte> into) const {
  std::ranges::copy(images_.image(index), into.begin());
  return images_.label(index);
}

}  // namespace unisono
