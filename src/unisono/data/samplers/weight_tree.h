#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "unisono/data/random.h"

namespace unisono::data {

/// Draws numbers by weight, in logarithmic time each: a binary tree whose leaves are the weights
/// and whose nodes are the sums of their children.
class WeightTree {
 public:
  /// Weights are finite and not negative.
  explicit WeightTree(std::span<const double> weights);

  /// Sum of all weights.
  [[nodiscard]] double total() const { return sums_[1]; }

  /// A number with probability weight / total(), which must be above 0; never one of weight 0.
  [[nodiscard]] std::size_t draw(Random& random) const;

  /// Makes a weight 0. Sums are formed anew, so that no rounding is left of it.
  void remove(std::size_t number);

 private:
  std::size_t n_leaves_;
  std::vector<double> sums_;  // node i has the children 2i and 2i + 1; leaves are the last half
};

}  // namespace unisono::data
