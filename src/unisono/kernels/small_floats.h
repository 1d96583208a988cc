#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::kernels {

// Scalar conversions for the reference and for tests; the vectorized loops have separate code. All
// conversions to 16 bits round to nearest even, overflow to infinity, keep subnormals and convert
// every NaN to a quiet NaN.

[[nodiscard]] float float_from_f16(std::uint16_t bits);
[[nodiscard]] std::uint16_t f16_from_float(float value);

[[nodiscard]] float float_from_bf16(std::uint16_t bits);
[[nodiscard]] std::uint16_t bf16_from_float(float value);

// Floats as blocks of kFloat8Block elements: each element is an E4M3 number (Micikevicius et al.,
// 2022) times the block's scale, a float that maps the block's largest magnitude to 448.

inline constexpr std::int64_t kFloat8Block = 128;

/// Returns the size of `count` encoded elements in bytes: about a quarter of the size of the
/// floats.
[[nodiscard]] std::int64_t float8_bytes(std::int64_t count);

/// Encodes `count` floats. `bytes` need not be aligned and must not overlap `floats`.
///
/// In a block with the largest magnitude m, the error of a decoded element is at most 2^-4 of the
/// element or 2^-18 m, whichever is larger. A block with m below 2^-117 is decoded as zeros, a
/// block with an infinity or NaN as NaNs. The bytes do not depend on the instruction set or the
/// caller's floating point mode.
void encode_float8(const float* floats, std::int64_t count, std::byte* bytes);

/// Decodes the bytes of encode_float8() to `count` floats.
void decode_float8(const std::byte* bytes, std::int64_t count, float* floats);

// Functions for a single block of kFloat8Block floats. Encoding returns the block's scale.

using EncodeFloat8Block = float (*)(const std::uint8_t* floats, std::uint8_t* codes);
using DecodeFloat8Block = void (*)(const std::uint8_t* codes, float scale, std::uint8_t* floats);

/// Plain loops: the reference for tests of the vectorized functions.
[[nodiscard]] float encode_float8_reference(const std::uint8_t* floats, std::uint8_t* codes);
void decode_float8_reference(const std::uint8_t* codes, float scale, std::uint8_t* floats);

/// Returns the fastest functions for this CPU.
[[nodiscard]] EncodeFloat8Block float8_encoder();
[[nodiscard]] DecodeFloat8Block float8_decoder();

// Constants of E4M3: bias 7, 3 bits of mantissa, largest number 448.
inline constexpr float kFloat8Largest = 448;
inline constexpr std::uint32_t kInfinityBits = 0x7F80'0000;
/// A block with a smaller scale is encoded as zeros, because the reciprocal of the scale must be
/// finite.
inline constexpr float kLeastFloat8Scale = 0x1p-126F;
/// Difference of the exponent biases of float and E4M3, shifted to the exponent field of a float.
inline constexpr std::uint32_t kFloat8Rebias = 120U << 23U;
/// Adding this number aligns subnormals: E4M3's subnormals are multiples of 2^-9 below 2^-6, and
/// the last bit of this number has the weight 2^-9.
inline constexpr float kFloat8Aligner = 0x1p14F;
inline constexpr float kFloat8SmallestNormal = 0x1p-6F;

}  // namespace unisono::kernels
