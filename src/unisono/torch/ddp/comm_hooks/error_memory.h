#pragma once

#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

/// subtract_finite() of two contiguous tensors.
void subtract_finite(const at::Tensor& error, const at::Tensor& sent);

/// What compression has taken from each parameter's gradient of this rank, to be added to its next
/// one. By parameter: it outlives the buckets' rebuilding.
class ErrorMemory {
 public:
  /// Adds it to the bucket's gradients.
  void add_to(const GradBucket& bucket) const;

  /// `error` has the elements of the bucket's buffer, and becomes the memory's.
  void keep(const GradBucket& bucket, const at::Tensor& error);

 private:
  std::unordered_map<const at::TensorImpl*, at::Tensor> errors_;
};

}  // namespace unisono::ddp
