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

// The canonical tree over ranks is left-balanced: T[lo, hi) = T[lo, mid) + T[mid, hi) with
// mid = lo + the largest power of two below hi - lo. Every result of a reduction is this tree's,
// whoever computes which part of it. A range that occurs in it is a canonical subtree.

/// Where the tree parts `range`, which has at least two ranks.
[[nodiscard]] int split_point(RankRange range);

/// Each rank of `range` by itself.
[[nodiscard]] std::vector<RankRange> leaves_of(RankRange range);

/// The largest canonical subtrees of T[0, world_size) all of whose ranks are in `ranks`, in order
/// of rank. `ranks` is ascending.
[[nodiscard]] std::vector<RankRange> maximal_subtrees(std::span<const int> ranks, int world_size);

/// How values that stand for the subtrees `inputs` combine to `whole`: step by step, as the kernels
/// take it. Empty for one input.
///
/// Throws Error(kInternal) unless the inputs are canonical subtrees that make up `whole`, in order.
[[nodiscard]] std::vector<kernels::ReduceStep> reduce_steps(std::span<const RankRange> inputs,
                                                            RankRange whole);

}  // namespace unisono::collective
