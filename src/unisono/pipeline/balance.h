#pragma once

#include <vector>

namespace unisono::pipeline {

/// A part of a model: layers begin, ..., end - 1.
struct LayerRange {
  int begin;
  int end;

  [[nodiscard]] int count() const { return end - begin; }

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// Cuts layers into parts whose sizes differ by at most one, the larger ones first: into `n_parts`,
/// or, with fewer layers, into one for each of them. What comes before the first layer (an encoder)
/// goes with the first part, what comes after the last (a decoder) with the last.
///
/// Throws Error(kInvalidArgument) for numbers below 1.
[[nodiscard]] std::vector<LayerRange> cut_evenly(int n_layers, int n_parts);

/// Cuts layers into `n_parts` parts, none of them empty, such that the largest sum of `costs` is as
/// small as it can be: of times, or of bytes. Of such cuts the one whose last parts are the
/// longest. Takes the square of the number of layers, times the parts.
///
/// Throws Error(kInvalidArgument) for fewer layers than parts, or a cost that is negative or no
/// number.
[[nodiscard]] std::vector<LayerRange> cut_by_cost(const std::vector<double>& costs, int n_parts);

/// The sum of each part's costs.
[[nodiscard]] std::vector<double> sums_of_parts(const std::vector<double>& costs,
                                                const std::vector<LayerRange>& parts);

}  // namespace unisono::pipeline
