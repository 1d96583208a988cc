#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::ddp {

// Single-pass operations of gradient compression on arrays of floats.

/// Computes sums[i] += floats[i].
void add_floats(float* sums, const float* floats, std::int64_t count);

/// Divides each element by `divisor`.
void divide_floats(float* floats, float divisor, std::int64_t count);

/// Computes error[i] -= sent[i], then replaces non-finite results by zero: otherwise a gradient
/// that overflowed once would remain in the error permanently.
void subtract_finite(float* error, const float* sent, std::int64_t count);

/// Computes error[i] += factor * (floats[i] - sent[i]), then replaces non-finite results by zero.
void add_lost(
    float* error, const float* floats, const float* sent, float factor, std::int64_t count);

/// Elements per block. Floats become 8-bit integers of -127 to 127 with one scale per block, which
/// maps the largest magnitude to 127. The decoded error is at most 1/254 of the largest magnitude.
inline constexpr std::int64_t kInt8Block = 128;

/// Returns the encoded size of `count` elements in bytes.
[[nodiscard]] std::int64_t int8_bytes(std::int64_t count);

/// Encodes floats. A block with a largest magnitude below 2^-119 has no scale and decodes to zeros.
/// A block with an infinity or NaN decodes to NaNs. `bytes` need not be aligned.
void encode_int8(const float* floats, std::int64_t count, std::byte* bytes);

/// Decodes the output of encode_int8().
void decode_int8(const std::byte* bytes, std::int64_t count, float* floats);

}  // namespace unisono::ddp
