#pragma once

#include <cstdint>

namespace unisono::kernels {

/// How f32 elements are made smaller, at the price of their last bits.
enum class Compression : std::uint8_t {
  kNone,
  kBFloat16,  ///< Half the bytes: 8 bits of mantissa, rounded to nearest even.
  /// About a quarter: blocks of kFloat8Block elements, each an E4M3 number (Micikevicius et al.,
  /// 2022) times the block's scale, a float that takes the largest magnitude to 448.
  kFloat8
};

inline constexpr std::int64_t kFloat8Block = 128;

/// Bytes of `count` elements.
[[nodiscard]] std::int64_t compressed_bytes(Compression compression, std::int64_t count);

/// Compresses `count` floats. Neither pointer need be aligned; they do not overlap.
///
/// What comes back is off by at most 2^-8 of each element with kBFloat16. With kFloat8, of a block
/// whose largest magnitude is m, by at most 2^-4 of each element or 2^-18 m, whichever is more;
/// blocks with m below 2^-117 come back as zeros, those with an infinity or NaN as NaNs.
/// The bytes do not depend on the instruction set or the caller's floating point mode.
void compress(Compression compression, const void* floats, std::int64_t count, void* bytes);

/// The other way.
void decompress(Compression compression, const void* bytes, std::int64_t count, void* floats);

}  // namespace unisono::kernels
