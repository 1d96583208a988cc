#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {

/// all_reduce() of several dense tensors of the same type, in place, as a single operation.
/// `tensors` must not be empty.
void coalesced_all_reduce(ProcessGroup& group,
                          const std::vector<at::Tensor>& tensors,
                          const AllReduceOptions& options);

}  // namespace unisono
