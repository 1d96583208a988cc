#include "unisono/data/transforms/augmented_images.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unisono/data/image_dataset.h"
#include "unisono/data/random.h"
#include "unisono/data/transforms/image_crops.h"

namespace unisono {

AugmentedImages::AugmentedImages(std::shared_ptr<const ImageDataset> images,
                                 const AugmentationOptions& options)
    : images_(std::move(images)), options_(options) {}

std::int64_t AugmentedImages::load(std::int64_t index, std::span<std::byte> into) const {
  const LabeledImages& images = images_->images();
  const ImageShape shape{
      .channels = images.channels, .height = images.height, .width = images.width};
  Random random = Random::of_sample(options_.seed, epoch_.load(std::memory_order_relaxed), index);
  const std::span<const std::byte> original = images.image(index);
  std::vector<std::byte> image(original.size());
  random_crop(shape, original, options_.crop_padding, random, image);
  if (options_.flip && random.below(2) == 1) {
    flip_horizontally(shape, image);
  }
  images_->normalize(image, into);
  return images.label(index);
}

}  // namespace unisono
