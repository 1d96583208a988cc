#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "arguments.h"

namespace unisono::python {

/// Reduces several tensors of one rank to a new tensor, which takes part in an all_reduce.
///
/// For an average the result is the sum, and finish_several() divides.
[[nodiscard]] at::Tensor reduce_several(at::TensorList tensors,
                                        const c10d::ReduceOp& op,
                                        const Arguments& arguments);

/// Returns a function, to be called after the all_reduce of `result`, that copies the result to all
/// of the tensors.
[[nodiscard]] std::function<void()> finish_several(at::Tensor result,
                                                   at::TensorList tensors,
                                                   const c10d::ReduceOp& op);

/// Returns a function that copies the tensor at `source` to the other tensors.
[[nodiscard]] std::function<void()> copy_to_others(at::TensorList tensors, std::size_t source = 0);

}  // namespace unisono::python
