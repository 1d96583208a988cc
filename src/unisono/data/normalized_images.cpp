#include "unisono/data/normalized_images.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/transforms/image_crops.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

NormalizedImages::NormalizedImages(const char* who,
                                   const ImageShape& shape,
                                   std::vector<Normalize> normalize)
    : shape_(shape), normalize_(std::move(normalize)) {
  constexpr std::int64_t kMaxChannels = 1024;
  if (shape.channels < 1 || shape.channels > kMaxChannels) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: images of {} channels; 1 to {} are possible", who, shape.channels, kMaxChannels));
  }
  if (static_cast<std::int64_t>(normalize_.size()) != shape.channels) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a Normalize for {} channels, but the images have {}",
                            who,
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

}  // namespace unisono
