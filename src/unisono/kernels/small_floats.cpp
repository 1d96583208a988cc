#include "unisono/kernels/small_floats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "unisono/kernels/float_mode.h"

namespace unisono::kernels {
namespace {

constexpr std::uint32_t kF32Infinity = 0x7F80'0000;
constexpr std::uint32_t kF32Quiet = 0x0040'0000;

// Returns value / 2^n_bits, rounded to nearest, ties to even. n_bits is 1 to 31.
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
    // A carry out of the fraction correctly raises the exponent, up to infinity.
    const std::uint32_t rebiased = magnitude - ((127U - 15U) << 23U);
    return static_cast<std::uint16_t>(sign | shift_right_rounded(rebiased, 13));
  }
  if (exponent < -25) {
    return static_cast<std::uint16_t>(sign);
  }
  // A subnormal result: the fraction counts units of 2^-24.
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

constexpr auto kScaleBytes = static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kBlockBytes = kFloat8Block * static_cast<std::int64_t>(sizeof(float));

// All scales precede the codes.
std::int64_t scales_bytes(std::int64_t count) {
  return (count + kFloat8Block - 1) / kFloat8Block * kScaleBytes;
}

// Calls `visit(first, n)` for the elements of each block. The last block may be shorter.
template <class Visit>
void for_each_block(std::int64_t count, Visit visit) {
  for (std::int64_t first = 0; first < count; first += kFloat8Block) {
    visit(first, std::min(kFloat8Block, count - first));
  }
}

}  // namespace

std::int64_t float8_bytes(std::int64_t count) {
  return scales_bytes(count) + count;
}

void encode_float8(const float* floats, std::int64_t count, std::byte* bytes) {
  const FloatMode mode;
  const EncodeFloat8Block encode_block = float8_encoder();
  auto* const codes = reinterpret_cast<std::uint8_t*>(bytes + scales_bytes(count));
  for_each_block(count, [&](std::int64_t first, std::int64_t n) {
    const auto* const block = reinterpret_cast<const std::uint8_t*>(floats + first);
    float scale = 0;
    if (n == kFloat8Block) {
      scale = encode_block(block, codes + first);
    } else {
      std::array<std::uint8_t, kBlockBytes> padded{};
      std::array<std::uint8_t, kFloat8Block> padded_codes;
      std::copy_n(block, n * kScaleBytes, padded.data());
      scale = encode_block(padded.data(), padded_codes.data());
      std::copy_n(padded_codes.data(), n, codes + first);
    }
    std::memcpy(bytes + first / kFloat8Block * kScaleBytes, &scale, sizeof(scale));
  });
}

void decode_float8(const std::byte* bytes, std::int64_t count, float* floats) {
  const FloatMode mode;
  const DecodeFloat8Block decode_block = float8_decoder();
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(bytes + scales_bytes(count));
  for_each_block(count, [&](std::int64_t first, std::int64_t n) {
    float scale = 0;
    std::memcpy(&scale, bytes + first / kFloat8Block * kScaleBytes, sizeof(scale));
    auto* const block = reinterpret_cast<std::uint8_t*>(floats + first);
    if (n == kFloat8Block) {
      decode_block(codes + first, scale, block);
    } else {
      std::array<std::uint8_t, kFloat8Block> padded_codes{};
      std::array<std::uint8_t, kBlockBytes> padded;
      std::copy_n(codes + first, n, padded_codes.data());
      decode_block(padded_codes.data(), scale, padded.data());
      std::copy_n(padded.data(), n * kScaleBytes, block);
    }
  });
}

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
