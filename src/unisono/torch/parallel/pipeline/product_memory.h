#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "unisono/torch/parallel/pipeline/product_bits.h"

namespace unisono::parallel {

/// Memory for products of matrices, one at a time. A tensor of its own for each costs a page fault
/// for every 4 KiB wherever the allocator has given the last one's memory back.
class ProductMemory {
 public:
  /// A contiguous tensor of the sizes and the type of `like`, with any values, until the next call.
  [[nodiscard]] at::Tensor get(const at::Tensor& like) {
    if (!memory_.defined() || memory_.scalar_type() != like.scalar_type() ||
        memory_.numel() < like.numel()) {
      memory_.reset();  // Before there is another one.
      memory_ = at::empty({like.numel()}, like.options());
    }
    return memory_.narrow(0, 0, like.numel()).view(like.sizes());
  }

  void release() { memory_.reset(); }

 private:
  at::Tensor memory_;
};

/// What sums of weights' gradients need, over the chunks of a step and over steps.
struct WeightSums {
  ProductBits bits;
  ProductMemory memory;  ///< For products that don't add to the sum themselves.
};

}  // namespace unisono::parallel
