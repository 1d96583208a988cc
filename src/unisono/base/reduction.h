#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "unisono/base/buffer.h"

namespace unisono {

/// Operation that combines two elements. The values travel in descriptors: append only.
enum class ReduceKind : std::uint8_t {
  kSum,  ///< Logical or for bool.
  kAvg,
  kProduct,  ///< Logical and for bool.
  kMin,
  kMax,
  kBand,  ///< Bitwise; a bool is a single bit.
  kBor,
  kBxor,
  kPremulSum,  ///< Sum of the elements, each multiplied by a factor.
  kUser        ///< A user-defined function: UserReduction.
};

/// Number of values of ReduceKind.
inline constexpr int kReduceKindCount = 10;

/// Returns the name that messages print: "sum", "avg", ...
[[nodiscard]] const char* to_string(ReduceKind kind) noexcept;

/// Returns the type in which partial results are kept and sent: accumulate_dtype(dtype), or `dtype`
/// itself for a user-defined function, which supports no other type.
[[nodiscard]] DType partial_dtype(DType dtype, ReduceKind kind) noexcept;

/// A user-defined reduction: ReduceKind::kUser.
struct UserReduction {
  /// Computes `result[i]` from `lhs[i]` and `rhs[i]` for `count` elements of the buffers' dtype.
  ///
  /// - `result` may be the memory of `lhs` or `rhs`. Pointers are aligned to an element if the
  ///   buffers are.
  /// - The function should be commutative and associative. The canonical tree's order is kept, so
  ///   that a function that rounds gives the same bits on all ranks; `lhs` covers lower ranks than
  ///   `rhs`.
  /// - Partial results have no wider type: 16-bit floats stay 16-bit floats, and a bool is the byte
  ///   in the buffer.
  /// - A buffer is combined in parts, in any order, by any rank and thread, several at once. The
  ///   thread rounds to nearest and keeps subnormals.
  /// - An exception ends the operation; the operation's error contains the exception's text.
  std::function<void(const void* lhs, const void* rhs, void* result, std::int64_t count)> combine;
  /// Name of the reduction in messages.
  std::string name = {};
};

/// Algorithm of a reduction. The values travel in descriptors: append only.
enum class Algorithm : std::uint8_t {
  kAuto,     ///< The cheapest algorithm with the canonical bits.
  kOneShot,  ///< Every rank combines all contributions: fewest steps, for small buffers.
  /// Each rank combines one chunk and sends it to all: least traffic, for large buffers.
  kTwoShot,
  // The following algorithms are available for all_reduce only.
  kTree,  ///< Reduces to rank 0 and broadcasts along a binomial tree: few messages, for many nodes.
  /// Vector halving with distance doubling, then the reverse to gather the chunks.
  kHalvingDoubling,
  // The following algorithms combine in another order. Available for comparison; never chosen by
  // kAuto.
  kRing,            ///< The whole buffer travels once around all ranks.
  kChunkedRing,     ///< Chunks travel twice around all ranks.
  kParameterServer  ///< Rank 0 receives all buffers and sends the result to all.
};

/// All values of Algorithm, in order.
inline constexpr std::array kAlgorithms{Algorithm::kAuto,
                                        Algorithm::kOneShot,
                                        Algorithm::kTwoShot,
                                        Algorithm::kTree,
                                        Algorithm::kHalvingDoubling,
                                        Algorithm::kRing,
                                        Algorithm::kChunkedRing,
                                        Algorithm::kParameterServer};

/// Returns the name that messages print: "auto", "one_shot", ...
[[nodiscard]] const char* to_string(Algorithm algorithm) noexcept;

}  // namespace unisono
