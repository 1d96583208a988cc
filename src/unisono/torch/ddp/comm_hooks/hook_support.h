#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

/// Starts to average `tensor`, which is derived from the bucket's gradients, over the ranks.
inline Work average(ProcessGroup& group, const at::Tensor& tensor, const GradBucket& bucket) {
  return all_reduce_async(
      group, tensor, {.op = kAvg, .timeout = bucket.timeout(), .label = bucket.label()});
}

/// Range of elements of a bucket's buffer.
struct BufferRange {
  std::int64_t first;
  std::int64_t count;
};

/// Returns the ranges of bucket.gradients() in the bucket's buffer.
[[nodiscard]] std::vector<BufferRange> gradient_ranges(const GradBucket& bucket);

/// Returns views of `elements` with the layout that bucket.gradients() have in the bucket's buffer.
/// `elements` has as many elements as the buffer.
[[nodiscard]] std::vector<at::Tensor> gradient_views(const GradBucket& bucket,
                                                     const at::Tensor& elements);

/// Calls subtract_finite() for two contiguous tensors.
void subtract_finite(const at::Tensor& error, const at::Tensor& sent);

}  // namespace unisono::ddp
