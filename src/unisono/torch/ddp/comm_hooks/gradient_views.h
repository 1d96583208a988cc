#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

/// What bucket.gradients() are of its buffer, of another tensor with as many elements.
[[nodiscard]] std::vector<at::Tensor> gradient_views(const GradBucket& bucket,
                                                     const at::Tensor& elements);

}  // namespace unisono::ddp
