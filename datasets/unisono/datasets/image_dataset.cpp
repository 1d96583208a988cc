#include "unisono/datasets/image_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {

NormalizedImages::NormalizedImages(const char* class_name,
                                   const ImageShape& shape,
                                   std::vector<Normalize> normalize)
    : shape_(shape), normalize_(std::move(normalize)) {
  constexpr std::int64_t kMaxChannels = 1024;
  if (shape.channels < 1 || shape.channels > kMaxChannels) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: images of {} channels; 1 to {} are possible",
                            class_name,
                            shape.channels,
                            kMaxChannels));
  }
  if (static_cast<std::int64_t>(normalize_.size()) != shape.channels) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a Normalize for {} channels, but the images have {}",
                            class_name,
                            normalize_.size(),
                            shape.channels));
  }
}

std::vector<std::int64_t> NormalizedImages::sample_shape() const {
  return {shape_.channels, shape_.height, shape_.width};
}

std::int64_t NormalizedImages::load(std::int64_t index, std::span<std::byte> into) const {
  std::vector<std::byte> image(static_cast<std::size_t>(shape_.n_pixels()));
  const std::int64_t label = load_pixels(index, image);
  normalize(image, into);
  return label;
}

void NormalizedImages::normalize(std::span<const std::byte> image,
                                 std::span<std::byte> into) const {
  const std::span<float> values(reinterpret_cast<float*>(into.data()), into.size() / sizeof(float));
  const auto n_pixels = static_cast<std::size_t>(shape_.height * shape_.width);
  for (std::size_t channel = 0; channel < normalize_.size(); ++channel) {
    normalize_[channel].apply(image.subspan(channel * n_pixels, n_pixels),
                              values.subspan(channel * n_pixels, n_pixels));
  }
}

namespace {

ImageShape shape_of(const LabeledImages& images) {
  return {.channels = images.channels, .height = images.height, .width = images.width};
}

// One element per channel; no elements for an impossible number, which NormalizedImages rejects.
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

AugmentedImages::AugmentedImages(std::shared_ptr<const NormalizedImages> images,
                                 const AugmentationOptions& options)
    : images_(std::move(images)), options_(options) {}

std::int64_t AugmentedImages::load(std::int64_t index, std::span<std::byte> into) const {
  const ImageShape& shape = images_->shape();
  data::Random random =
      data::Random::of_sample(options_.seed, epoch_.load(std::memory_order_relaxed), index);
  std::vector<std::byte> original(static_cast<std::size_t>(shape.n_pixels()));
  std::vector<std::byte> image(original.size());
  const std::int64_t label = images_->load_pixels(index, original);
  random_crop(shape, original, options_.crop_padding, random, image);
  if (options_.flip && random.below(2) == 1) {
    flip_horizontally(shape, image);
  }
  images_->normalize(image, into);
  return label;
}

}  // namespace unisono::datasets
