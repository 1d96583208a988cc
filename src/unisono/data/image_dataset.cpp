#include "unisono/data/image_dataset.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/normalize.h"

namespace unisono {

std::span<const std::byte> LabeledImages::image(std::int64_t index) const {
  const auto n_pixels = static_cast<std::size_t>(height * width);
  return std::span(pixels).subspan(static_cast<std::size_t>(index) * n_pixels, n_pixels);
}

std::int64_t LabeledImages::label(std::int64_t index) const {
  return std::to_integer<std::int64_t>(labels[static_cast<std::size_t>(index)]);
}

ImageDataset::ImageDataset(LabeledImages images, const Normalize& normalize)
    : images_(std::move(images)), normalize_(normalize) {
  std::int64_t n_pixels = 0;
  if (images_.height < 1 || images_.width < 1 ||
      __builtin_mul_overflow(images_.height, images_.width, &n_pixels) ||
      __builtin_mul_overflow(n_pixels, images_.size(), &n_pixels) ||
      static_cast<std::size_t>(n_pixels) != images_.pixels.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ImageDataset: {} pixels are not {} images (one per label) of {} x {}",
                            images_.pixels.size(),
                            images_.size(),
                            images_.height,
                            images_.width));
  }
}

std::vector<std::int64_t> ImageDataset::sample_shape() const {
  return {1, images_.height, images_.width};
}

std::int64_t ImageDataset::load(std::int64_t index, std::span<std::byte> into) const {
  normalize_.apply(images_.image(index),
                   std::span(reinterpret_cast<float*>(into.data()), into.size() / sizeof(float)));
  return images_.label(index);
}

}  // namespace unisono
