#pragma once

#include <span>

namespace unisono::kernels {

/// Combines two earlier values into a new one. Values are numbered: first the inputs, then the
/// results of the steps in their order.
struct ReduceStep {
  int lhs;
  int rhs;
};

/// The order in which inputs are combined: the canonical tree, written down step by step. The last
/// step's value is the result; one input needs no step.
using ReduceSteps = std::span<const ReduceStep>;

}  // namespace unisono::kernels
