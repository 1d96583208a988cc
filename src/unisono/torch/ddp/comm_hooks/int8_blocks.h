#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::ddp {

/// Floats as 8-bit integers of -127 to 127, in blocks of kInt8Block with a scale each, which takes
/// the largest magnitude to 127. What comes back is off by at most 1/254 of that.
inline constexpr std::int64_t kInt8Block = 128;

/// Bytes of `count` elements.
[[nodiscard]] std::int64_t int8_bytes(std::int64_t count);

/// Blocks of which no scale exists, as their largest magnitude is below 2^-119, come back as zeros;
/// those with an infinity or NaN as NaNs. `bytes` need not be aligned.
void encode_int8(const float* floats, std::int64_t count, std::byte* bytes);

/// The other way.
void decode_int8(const std::byte* bytes, std::int64_t count, float* floats);

}  // namespace unisono::ddp
