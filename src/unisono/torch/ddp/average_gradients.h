#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {

/// Replaces each parameter's gradient by its mean over the ranks, with one all_reduce per element
/// type: what DistributedDataParallel does during backward, for loops that do without it. To be
/// called between backward() and the optimizer's step; a collective operation.
///
/// Parameters without a gradient are left out; they must be the same on every rank. Of `options`
/// only timeout, label and algorithm are used.
///
/// Throws Error(kInvalidArgument) for gradients that are sparse or not in CPU memory.
void average_gradients(ProcessGroup& group,
                       const std::vector<at::Tensor>& parameters,
                       AllReduceOptions options = {});

/// The same for the parameters' values: what training without synchronized gradients does from time
/// to time. Every rank passes the same parameters.
void average_parameters(ProcessGroup& group,
                        const std::vector<at::Tensor>& parameters,
                        AllReduceOptions options = {});

}  // namespace unisono
