#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/comm/options.h"

#include "arguments.h"

namespace unisono::python {

/// Returns the core's form of a PyTorch reduction. Throws the errors of `arguments`.
[[nodiscard]] ReduceOp reduce_op_of(const c10d::ReduceOp& op, const Arguments& arguments);

}  // namespace unisono::python
