#pragma once

#include <cstdint>
#include <unordered_map>
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

/// Compression losses of this rank's gradients, to be added to the next gradients. Stored by
/// parameter, so that the losses survive the rebuilding of buckets. Owned by the state of a hook.
/// Not thread-safe.
class ErrorMemory {
 public:
  /// Adds the losses to the bucket's gradients.
  void add_to(const GradBucket& bucket) const;

  /// Stores the losses of a bucket. `error` has the layout of the bucket's buffer; the object keeps
  /// views of the tensor.
  void keep(const GradBucket& bucket, const at::Tensor& error);

 private:
  std::unordered_map<const at::TensorImpl*, at::Tensor> errors_;
};

}  // namespace unisono::ddp
