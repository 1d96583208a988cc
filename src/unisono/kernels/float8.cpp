#include "unisono/kernels/float8.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "unisono/kernels/compress.h"

namespace unisono::kernels {
namespace {

float load_float(const std::uint8_t* floats, std::int64_t index) {
  float value = 0;
  std::memcpy(&value, floats + index * std::int64_t{sizeof(float)}, sizeof(value));
  return value;
}

std::uint8_t encode(float value, float inverse_scale) {
  const auto sign = std::bit_cast<std::uint32_t>(value) >> 24U & 0x80U;
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7FFF'FFFFU);
  const float scaled = magnitude * inverse_scale;
  const auto bits = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t normal = (bits + 0x7'FFFFU + (bits >> 20U & 1U) - kFloat8Rebias) >> 20U;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(scaled + kFloat8Aligner) -
                                  std::bit_cast<std::uint32_t>(kFloat8Aligner);
  return static_cast<std::uint8_t>(sign | (scaled < kFloat8SmallestNormal ? subnormal : normal));
}

float decode(std::uint8_t code, float scale) {
  const std::uint32_t magnitude = code & 0x7FU;
  const float normal = std::bit_cast<float>((magnitude << 20U) + kFloat8Rebias);
  const float subnormal =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(kFloat8Aligner) + magnitude) -
      kFloat8Aligner;
  const float value = (magnitude < 8 ? subnormal : normal) * scale;
  return (code & 0x80U) != 0 ? -value : value;
}

}  // namespace

float encode_float8_reference(const std::uint8_t* floats, std::uint8_t* codes) {
  std::uint32_t largest = 0;
  for (std::int64_t index = 0; index < kFloat8Block; ++index) {
    const auto bits = std::bit_cast<std::uint32_t>(load_float(floats, index));
    largest = std::max(largest, bits & 0x7FFF'FFFFU);
  }
  const float scale = std::bit_cast<float>(largest) / kFloat8Largest;
  if (largest >= kInfinityBits || scale < kLeastFloat8Scale) {
    std::fill_n(codes, kFloat8Block, std::uint8_t{0});
    return largest >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
  for (std::int64_t index = 0; index < kFloat8Block; ++index) {
    codes[index] = encode(load_float(floats, index), 1 / scale);
  }
  return scale;
}

void decode_float8_reference(const std::uint8_t* codes, float scale, std::uint8_t* floats) {
  for (std::int64_t index = 0; index < kFloat8Block; ++index) {
    const float value = decode(codes[index], scale);
    std::memcpy(floats + index * std::int64_t{sizeof(float)}, &value, sizeof(value));
  }
}

}  // namespace unisono::kernels
