#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/pass_feature.h"

namespace unisono::ddp {

/// Averages the sparse gradients among those of a model's parameters, when all buckets are done.
class SparseGradients : public PassFeature {
 public:
  explicit SparseGradients(const PassContext& context) : context_(context) {}

  /// Throws Error(kInvalidArgument) unless a sparse parameter's gradient is undefined or has its
  /// type and sizes; it may be dense, too: a weight that other layers use gets such a one.
  void adjust(std::size_t parameter, const at::Tensor& gradient) override;

  /// The weighted mean of each sparse parameter's gradient that any rank uses becomes its gradient.
  /// As a shadow, this rank has no rows, and keeps what it has.
  void end_pass(PassResult& result) override;

 private:
  const PassContext& context_;
};

}  // namespace unisono::ddp
