#pragma once

#include <bit>

namespace unisono::kernels {

/// Inputs [from, to), combined as the left-balanced tree does it: the passes' own order. Empty when
/// a value is none of these.
struct Subtree {
  int from = 0;
  int to = 0;

  [[nodiscard]] int size() const { return to - from; }
};

/// What the combination of two values is.
[[nodiscard]] inline Subtree join(Subtree left, Subtree right) {
  const bool is_adjacent = left.size() > 0 && right.size() > 0 && left.to == right.from;
  const auto n_before_last = static_cast<unsigned>(left.size() + right.size() - 1);
  if (!is_adjacent || static_cast<unsigned>(left.size()) != std::bit_floor(n_before_last)) {
    return {};
  }
  return {.from = left.from, .to = right.to};
}

}  // namespace unisono::kernels
