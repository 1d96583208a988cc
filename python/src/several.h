#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "arguments.h"

namespace unisono::python {

/// A new tensor that takes part in an all_reduce for several of a rank: what their reduction is.
///
/// An average is their sum, and finish_several() divides.
[[nodiscard]] at::Tensor reduce_several(at::TensorList tensors,
                                        const c10d::ReduceOp& op,
                                        const Arguments& arguments);

/// After the all_reduce of `result`: brings it to all of the tensors.
[[nodiscard]] std::function<void()> finish_several(at::Tensor result,
                                                   at::TensorList tensors,
                                                   const c10d::ReduceOp& op);

/// Copies the first of the tensors to the others, or that at `source`.
[[nodiscard]] std::function<void()> copy_to_others(at::TensorList tensors, std::size_t source = 0);

}  // namespace unisono::python
