#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono {

/// Replaces each parameter's gradient by the mean over the ranks, with one all_reduce per element
/// type. For training loops without DistributedDataParallel, which averages gradients during
/// backward. Call the function between backward() and the optimizer's step. A collective operation;
/// blocks until all gradients are averaged.
///
/// Parameters without a gradient are skipped; the set of skipped parameters must be equal on every
/// rank. Only `timeout`, `label` and `algorithm` of `options` are used.
///
/// Throws Error(kInvalidArgument) for gradients that are sparse or on several devices. Warns once
/// if DistributedDataParallel has averaged the gradients already.
void average_gradients(ProcessGroup& group,
                       const std::vector<at::Tensor>& parameters,
                       AllReduceOptions options = {});

/// Replaces each parameter's value by the mean over the ranks, in the manner of
/// average_gradients(). Training without synchronized gradients calls the function periodically.
/// Every rank passes the same parameters.
void average_parameters(ProcessGroup& group,
                        const std::vector<at::Tensor>& parameters,
                        AllReduceOptions options = {});

}  // namespace unisono
