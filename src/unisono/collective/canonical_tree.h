#pragma once

#include <span>
#include <vector>

namespace unisono::kernels {
struct ReduceStep;
}  // namespace unisono::kernels

namespace unisono::collective {

/// Consecutive ranks lo, ..., hi - 1.
struct RankRange {
  int lo;
  int hi;

  [[nodiscard]] int size() const { return hi - lo; }

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

// The canonical tree over ranks is left-balanced: T[lo, hi) = T[lo, mid) + T[mid, hi) with mid = lo
// + the largest power of two below hi - lo. Every reduction evaluates this tree, regardless of the
// assignment of parts to ranks. A range that occurs in the tree is a canonical subtree.

/// Returns the rank at which the tree splits `range`. The range must contain at least two ranks.
[[nodiscard]] int split_point(RankRange range);

/// Returns the single-rank ranges of `range`.
[[nodiscard]] std::vector<RankRange> leaves_of(RankRange range);

/// Returns the largest canonical subtrees of T[0, world_size) that contain only ranks of `ranks`,
/// in order of rank. `ranks` is ascending.
[[nodiscard]] std::vector<RankRange> maximal_subtrees(std::span<const int> ranks, int world_size);

/// Returns the steps, in the form of the kernels, that combine the values of the subtrees `inputs`
/// to the value of `whole`. Empty for a single input.
///
/// Throws Error(kInternal) unless the inputs are canonical subtrees that partition `whole`, in
/// order.
[[nodiscard]] std::vector<kernels::ReduceStep> reduce_steps(std::span<const RankRange> inputs,
                                                            RankRange whole);

}  // namespace unisono::collective
