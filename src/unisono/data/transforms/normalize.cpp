#include "unisono/data/transforms/normalize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>

#include "unisono/base/error.h"

namespace unisono {

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

}  // namespace unisono
