#pragma once

#include <cstdint>

#include "unisono/base/dtype.h"

namespace unisono {

/// How two elements become one. The values travel in descriptors: append only.
enum class ReduceKind : std::uint8_t {
  kSum,  ///< Of bool: or.
  kAvg,
  kProduct,  ///< Of bool: and.
  kMin,
  kMax,
  kBand,  ///< Bit by bit; a bool is one bit.
  kBor,
  kBxor,
  kPremulSum,  ///< The sum of elements times a factor.
  kUser        ///< A function of the user's own: UserReduction.
};

inline constexpr int kReduceKindCount = 10;

/// "sum", "avg", ... as in messages.
[[nodiscard]] const char* to_string(ReduceKind kind) noexcept;

/// The type in which partial results are kept and travel: accumulate_dtype(dtype), save that a
/// user's own function knows the dtype alone.
[[nodiscard]] DType partial_dtype(DType dtype, ReduceKind kind) noexcept;

/// Whether the algorithms that lose bits take it: what training averages, sums of numbers that are
/// combined in f32, where a small error is no other meaning.
[[nodiscard]] bool is_compressible(DType dtype, ReduceKind kind) noexcept;

}  // namespace unisono
