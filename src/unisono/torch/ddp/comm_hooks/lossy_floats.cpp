#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

#include <bit>
#include <cstdint>

namespace unisono::ddp {
namespace {

float finite_or_zero(float value) {
  constexpr std::uint32_t kInfinityBits = 0x7F80'0000;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits & kInfinityBits) == kInfinityBits ? 0 : bits);
}

}  // namespace

void add_floats(float* sums, const float* floats, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] += floats[i];
  }
}

void divide_floats(float* floats, float divisor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    floats[i] /= divisor;
  }
}

void subtract_finite(float* error, const float* sent, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    error[i] = finite_or_zero(error[i] - sent[i]);
  }
}

void add_lost(
    float* error, const float* floats, const float* sent, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    error[i] = finite_or_zero(error[i] + factor * (floats[i] - sent[i]));
  }
}

}  // namespace unisono::ddp
