#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace unisono {

/// A reduction of the user's own making: ReduceKind::kUser.
struct UserReduction {
  /// Makes `result[i]` of `lhs[i]` and `rhs[i]`, for `count` elements of the buffers' dtype.
  ///
  /// `result` may be the very memory of `lhs` or `rhs`. It is meant to be commutative and
  /// associative, but the canonical tree's order is kept, so that a function which rounds gives the
  /// same bits on all ranks; `lhs` is of lower ranks than `rhs`. There is no wider type in between:
  /// 16-bit floats come and go as such, a bool is the byte in the buffer. Pointers are aligned to
  /// an element where the buffers are. A buffer is combined part by part, in any order of parts, by
  /// any rank and thread, several at once; the thread rounds to nearest and keeps subnormals. What
  /// it throws ends the operation, whose error names it.
  std::function<void(const void* lhs, const void* rhs, void* result, std::int64_t count)> combine;
  /// What messages call it.
  std::string name = {};
};

}  // namespace unisono
