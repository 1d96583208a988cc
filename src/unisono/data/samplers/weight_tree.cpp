#include "unisono/data/samplers/weight_tree.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "unisono/data/random.h"

namespace unisono::data {

WeightTree::WeightTree(std::span<const double> weights)
    : n_leaves_(std::bit_ceil(std::max<std::size_t>(weights.size(), 1))), sums_(2 * n_leaves_) {
  std::ranges::copy(weights, sums_.begin() + static_cast<std::ptrdiff_t>(n_leaves_));
  for (std::size_t node = n_leaves_ - 1; node > 0; --node) {
    sums_[node] = sums_[2 * node] + sums_[2 * node + 1];
  }
}

std::size_t WeightTree::draw(Random& random) const {
  double left_over = random.uniform() * total();
  std::size_t node = 1;
  while (node < n_leaves_) {
    const double left = sums_[2 * node];
    const double right = sums_[2 * node + 1];
    // Rounding may point just past the last weight above 0.
    const bool goes_left = left_over < left || right == 0;
    left_over = goes_left ? left_over : left_over - left;
    node = 2 * node + (goes_left ? 0 : 1);
  }
  return node - n_leaves_;
}

void WeightTree::remove(std::size_t number) {
  std::size_t node = n_leaves_ + number;
  sums_[node] = 0;
  for (node /= 2; node > 0; node /= 2) {
    sums_[node] = sums_[2 * node] + sums_[2 * node + 1];
  }
}

}  // namespace unisono::data
