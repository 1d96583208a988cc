#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/comm/options.h"

#include "arguments.h"

namespace unisono::python {

/// PyTorch's reduction in our words. Throws as `arguments` do.
[[nodiscard]] ReduceOp reduce_op_of(const c10d::ReduceOp& op, const Arguments& arguments);

}  // namespace unisono::python
