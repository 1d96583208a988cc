#include "unisono/torch/ddp/comm_hooks/lossy_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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

namespace {

constexpr float kLargest = 127;
constexpr std::int64_t kScaleBytes = sizeof(float);
constexpr std::uint32_t kInfinityBits = 0x7F80'0000;
// Below this magnitude the reciprocal of a scale overflows.
constexpr float kSmallest = 0x1p-119F;
// Adding this constant leaves a float's integer part in the lowest bits, rounded to nearest even.
constexpr float kRounder = 0x1.8p23F;

std::int64_t n_blocks(std::int64_t count) {
  return (count + kInt8Block - 1) / kInt8Block;
}

// Compares bit patterns, which order like the magnitudes, with NaN as the largest.
std::uint32_t largest_magnitude(const float* floats, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(floats[i]) & 0x7FFF'FFFFU);
  }
  return largest;
}

// Encodes one block and returns the scale.
float encode_block(const float* floats, std::int64_t count, std::byte* codes) {
  const std::uint32_t bits = largest_magnitude(floats, count);
  const float largest = std::bit_cast<float>(bits);
  if (bits >= kInfinityBits || largest < kSmallest) {
    std::memset(codes, 0, static_cast<std::size_t>(count));
    return bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const float inverse = kLargest / largest;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::byte>(std::bit_cast<std::uint32_t>(floats[i] * inverse + kRounder));
  }
  const float scale = largest / kLargest;
  return std::isinf(scale * kLargest) ? std::nextafter(scale, 0.0F) : scale;
}

}  // namespace

std::int64_t int8_bytes(std::int64_t count) {
  return n_blocks(count) * kScaleBytes + count;
}

// All scales precede the codes.
void encode_int8(const float* floats, std::int64_t count, std::byte* bytes) {
  std::byte* const codes = bytes + n_blocks(count) * kScaleBytes;
  for (std::int64_t i = 0; i < count; i += kInt8Block) {
    const float scale = encode_block(floats + i, std::min(kInt8Block, count - i), codes + i);
    std::memcpy(bytes + i / kInt8Block * kScaleBytes, &scale, sizeof(scale));
  }
}

void decode_int8(const std::byte* bytes, std::int64_t count, float* floats) {
  const std::byte* const codes = bytes + n_blocks(count) * kScaleBytes;
  for (std::int64_t i = 0; i < count; i += kInt8Block) {
    float scale = 0;
    std::memcpy(&scale, bytes + i / kInt8Block * kScaleBytes, sizeof(float));
    const std::int64_t end = std::min(i + kInt8Block, count);
    for (std::int64_t j = i; j < end; ++j) {
      floats[j] = static_cast<float>(static_cast<std::int8_t>(codes[j])) * scale;
    }
  }
}

}  // namespace unisono::ddp
