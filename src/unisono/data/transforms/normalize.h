#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace unisono {

/// Turns a pixel's byte into the float that torchvision's ToTensor and Normalize(mean, std) make of
/// it, bit for bit: byte / 255, minus mean, divided by std, each step rounded to float32.
class Normalize {
 public:
  /// Throws Error(kInvalidArgument) unless mean is finite and std finite and above zero.
  Normalize(double mean, double std);

  [[nodiscard]] float operator()(std::byte pixel) const {
    return table_[std::to_integer<std::size_t>(pixel)];
  }

  /// Normalizes `pixels` into `into`, which is equally long.
  ///
  /// Throws Error(kInvalidArgument) when the lengths differ.
  void apply(std::span<const std::byte> pixels, std::span<float> into) const;

 private:
  std::array<float, 256> table_;
};

/// MNIST's usual Normalize(0.1307, 0.3081).
[[nodiscard]] Normalize mnist_normalize();

}  // namespace unisono
