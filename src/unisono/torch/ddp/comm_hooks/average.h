#pragma once

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

/// Starts to average `tensor`, which is made of the bucket's gradients, over the ranks.
inline Work average(ProcessGroup& group, const at::Tensor& tensor, const GradBucket& bucket) {
  return all_reduce_async(
      group, tensor, {.op = kAvg, .timeout = bucket.timeout(), .label = bucket.label()});
}

}  // namespace unisono::ddp
