#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

/// Elements of a bucket's buffer.
struct ElementRange {
  std::int64_t first;
  std::int64_t count;
};

/// Where bucket.gradients() are in its buffer.
[[nodiscard]] std::vector<ElementRange> gradient_ranges(const GradBucket& bucket);

/// What bucket.gradients() are of its buffer, of another tensor with as many elements.
[[nodiscard]] std::vector<at::Tensor> gradient_views(const GradBucket& bucket,
                                                     const at::Tensor& elements);

}  // namespace unisono::ddp
