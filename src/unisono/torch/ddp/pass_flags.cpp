#include "unisono/torch/ddp/pass_flags.h"

#include <array>
#include <cstddef>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/real.h>

namespace unisono::ddp {
namespace {

using Numbers = std::array<double, kFlagBits>;

at::Tensor as_tensor(Numbers& numbers) {
  return at::from_blob(numbers.data(), {kFlagBits}, at::kDouble);
}

}  // namespace

void write_flags(const at::Tensor& elements, PassFlags flags) {
  Numbers numbers{};
  for (std::size_t bit = 0; bit < kFlagBits; ++bit) {
    numbers[bit] = static_cast<double>((flags >> bit) & 1U);
  }
  // Copies to a device take the numbers at the call.
  elements.copy_(as_tensor(numbers), /*non_blocking=*/true);
}

PassFlags read_flags(const at::Tensor& elements) {
  Numbers numbers{};
  as_tensor(numbers).copy_(elements.is_complex() ? at::real(elements) : elements);
  PassFlags flags = 0;
  for (std::size_t bit = 0; bit < kFlagBits; ++bit) {
    flags |= static_cast<PassFlags>(numbers[bit] != 0) << bit;
  }
  return flags;
}

}  // namespace unisono::ddp
