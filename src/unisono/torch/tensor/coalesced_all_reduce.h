#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {

/// all_reduce() of several dense tensors of one type, in place, as one operation. Not of none.
void coalesced_all_reduce(ProcessGroup& group,
                          const std::vector<at::Tensor>& tensors,
                          const AllReduceOptions& options);

}  // namespace unisono
