#include "unisono/data/image_dataset.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

namespace {

// Before as many Normalizes are made.
std::int64_t checked_channels(const LabeledImages& images) {
  constexpr std::int64_t kMaxChannels = 1024;
  if (images.channels < 1 || images.channels > kMaxChannels) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ImageDataset: images of {} channels; 1 to {} are possible",
                            images.channels,
                            kMaxChannels));
  }
  return images.channels;
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
    : images_(std::move(images)),
      normalize_(static_cast<std::size_t>(checked_channels(images_)), normalize) {
  check();
}

ImageDataset::ImageDataset(LabeledImages images, std::vector<Normalize> normalize)
    : images_(std::move(images)), normalize_(std::move(normalize)) {
  check();
}

void ImageDataset::check() const {
  if (static_cast<std::int64_t>(normalize_.size()) != images_.channels) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ImageDataset: a Normalize for {} channels, but the images have {}",
                            normalize_.size(),
                            images_.channels));
  }
  std::int64_t n_pixels = 0;
  if (images_.channels < 1 || images_.height < 1 || images_.width < 1 ||
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

std::vector<std::int64_t> ImageDataset::sample_shape() const {
  return {images_.channels, images_.height, images_.width};
}

std::int64_t ImageDataset::load(std::int64_t index, std::span<std::byte> into) const {
  normalize(images_.image(index), into);
  return images_.label(index);
}

void ImageDataset::normalize(std::span<const std::byte> image, std::span<std::byte> into) const {
  const std::span<float> values(reinterpret_cast<float*>(into.data()), into.size() / sizeof(float));
  const auto n_pixels = static_cast<std::size_t>(images_.height * images_.width);
  for (std::size_t channel = 0; channel < normalize_.size(); ++channel) {
    normalize_[channel].apply(image.subspan(channel * n_pixels, n_pixels),
                              values.subspan(channel * n_pixels, n_pixels));
  }
}

}  // namespace unisono
