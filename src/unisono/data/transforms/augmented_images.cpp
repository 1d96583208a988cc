#include "unisono/data/transforms/augmented_images.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unisono/data/normalized_images.h"
#include "unisono/data/random.h"
#include "unisono/data/transforms/image_crops.h"

namespace unisono {

AugmentedImages::AugmentedImages(std::shared_ptr<const NormalizedImages> images,
                                 const AugmentationOptions& options)
    : images_(std::move(images)), options_(options) {}

std::int64_t AugmentedImages::load(std::int64_t index, std::span<std::byte> into) const {
  const ImageShape& shape = images_->shape();
  Random random = Random::of_sample(options_.seed, epoch_.load(std::memory_order_relaxed), index);
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

}  // namespace unisono
