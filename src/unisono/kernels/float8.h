#pragma once

#include <cstdint>

#include "unisono/kernels/compress.h"

namespace unisono::kernels {

// Blocks of kFloat8Block floats. Neither pointer need be aligned.

using EncodeFloat8Block = float (*)(const std::uint8_t* floats, std::uint8_t* codes);
using DecodeFloat8Block = void (*)(const std::uint8_t* codes, float scale, std::uint8_t* floats);

/// Plain loops: what the vectorized ones are tested against. Encoding returns the block's scale.
[[nodiscard]] float encode_float8_reference(const std::uint8_t* floats, std::uint8_t* codes);
void decode_float8_reference(const std::uint8_t* codes, float scale, std::uint8_t* floats);

/// The fastest ones for this CPU.
[[nodiscard]] EncodeFloat8Block float8_encoder();
[[nodiscard]] DecodeFloat8Block float8_decoder();

// Of E4M3: bias 7, 3 bits of mantissa, the largest number 448.
inline constexpr float kFloat8Largest = 448;
inline constexpr std::uint32_t kInfinityBits = 0x7F80'0000;
/// Blocks whose scale would be less are zeros: its reciprocal must be a number.
inline constexpr float kLeastFloat8Scale = 0x1p-126F;
/// What an exponent of E4M3 differs by from that of a float, in place.
inline constexpr std::uint32_t kFloat8Rebias = 120U << 23U;
/// E4M3's subnormals are multiples of 2^-9, below 2^-6. In this number's last bit lies 2^-9.
inline constexpr float kFloat8Aligner = 0x1p14F;
inline constexpr float kFloat8SmallestNormal = 0x1p-6F;

}  // namespace unisono::kernels
