#include "unisono/kernels/float16.h"

#include <bit>
#include <cstdint>

namespace unisono::kernels {
namespace {

constexpr std::uint32_t kF32Infinity = 0x7F80'0000;
constexpr std::uint32_t kF32Quiet = 0x0040'0000;

// value / 2^n_bits, rounded to nearest, ties to even. n_bits is 1 to 31.
std::uint32_t shift_right_rounded(std::uint32_t value, int n_bits) {
  const std::uint32_t whole = value >> n_bits;
  const std::uint32_t rest = value & ((1U << n_bits) - 1);
  const std::uint32_t half = 1U << (n_bits - 1);
  const bool is_up = rest > half || (rest == half && (whole & 1U) != 0);
  return whole + (is_up ? 1 : 0);
}

}  // namespace

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) {
    const std::uint32_t quiet = fraction != 0 ? kF32Quiet : 0;
    return std::bit_cast<float>(sign | kF32Infinity | quiet | (fraction << 13U));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23U) | (fraction << 13U));
}

std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > kF32Infinity) {
    return static_cast<std::uint16_t>(sign | 0x7E00U);
  }
  const int exponent = static_cast<int>(magnitude >> 23U) - 127;
  if (exponent > 15) {
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (exponent >= -14) {
    // A carry out of the fraction raises the exponent, up to infinity, as it should.
    const std::uint32_t rebiased = magnitude - ((127U - 15U) << 23U);
    return static_cast<std::uint16_t>(sign | shift_right_rounded(rebiased, 13));
  }
  if (exponent < -25) {
    return static_cast<std::uint16_t>(sign);
  }
  // Subnormal: the fraction counts units of 2^-24.
  const std::uint32_t significand = (magnitude & 0x007F'FFFFU) | 0x0080'0000U;
  return static_cast<std::uint16_t>(sign | shift_right_rounded(significand, -1 - exponent));
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFF'FFFFU) > kF32Infinity) {
    return static_cast<std::uint16_t>((bits | kF32Quiet) >> 16U);
  }
  return static_cast<std::uint16_t>(shift_right_rounded(bits, 16));
}

}  // namespace unisono::kernels
