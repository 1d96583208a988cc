#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/average.h"

namespace unisono {
namespace {

BucketWork compress(ProcessGroup& group, const GradBucket& bucket, at::ScalarType type) {
  const at::Tensor& buffer = bucket.buffer();
  if (buffer.scalar_type() != at::kFloat && buffer.scalar_type() != at::kDouble) {
    return allreduce_hook(group, bucket);
  }
  const at::Tensor compressed = buffer.to(type);
  return {.work = ddp::average(group, compressed, bucket), .then = [buffer, compressed] {
            buffer.copy_(compressed);
            return BucketWork();
          }};
}

}  // namespace

BucketWork allreduce_hook(ProcessGroup& group, const GradBucket& bucket) {
  return {.work = ddp::average(group, bucket.buffer(), bucket)};
}

BucketWork fp16_compress_hook(ProcessGroup& group, const GradBucket& bucket) {
  return compress(group, bucket, at::kHalf);
}

BucketWork bf16_compress_hook(ProcessGroup& group, const GradBucket& bucket) {
  return compress(group, bucket, at::kBFloat16);
}

}  // namespace unisono
