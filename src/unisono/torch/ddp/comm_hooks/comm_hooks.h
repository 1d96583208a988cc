#pragma once

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono {

// Hooks without a state of their own, for DistributedDataParallel::register_comm_hook(); the state
// is the process group.

/// What happens without a hook: to build hooks on.
BucketWork allreduce_hook(ProcessGroup& group, const GradBucket& bucket);

/// Gradients travel as 16-bit floats: half the bytes, values up to 65504 with 11 bits. The sum over
/// ranks is made in 32 bits and rounded once. Gradients of 16 bits, and complex ones, go as they
/// are.
BucketWork fp16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

/// The same with bfloat16: all of float's range, 8 bits.
BucketWork bf16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

}  // namespace unisono
