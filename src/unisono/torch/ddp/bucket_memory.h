#pragma once

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

namespace unisono::ddp {

/// Lets others know that gradients in a bucket's memory are averages, while it lives.
class BucketMemory {
 public:
  explicit BucketMemory(const Buffer& buffer);
  ~BucketMemory();

  BucketMemory(const BucketMemory&) = delete;
  BucketMemory& operator=(const BucketMemory&) = delete;
  BucketMemory(BucketMemory&&) = delete;
  BucketMemory& operator=(BucketMemory&&) = delete;

 private:
  const void* begin_;
};

/// Whether the tensor lies in a bucket. From any thread.
[[nodiscard]] bool is_in_a_bucket(const at::Tensor& tensor);

}  // namespace unisono::ddp
