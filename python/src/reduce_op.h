#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "unisono/comm/options.h"

namespace unisono::python {

/// PyTorch's reduction in our words. `operation` names the caller in what is thrown.
[[nodiscard]] ReduceOp reduce_op_of(const c10d::ReduceOp& op, const char* operation);

}  // namespace unisono::python
