#pragma once

#include <cstdint>
#include <memory>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/error_memory.h"

namespace unisono {

/// What 32 bits of a gradient become, in blocks of 128 with a scale each.
enum class QuantizedType : std::uint8_t {
  kInt8,   ///< 256 equal steps over the block's range: off by up to 1/254 of its largest magnitude.
  kFloat8  ///< E4M3: off by up to 1/16 of each gradient, also of small ones.
};

/// What quantize_hook() keeps from one pass to the next: of one model.
class QuantizeState {
 public:
  /// Throws Error(kInvalidArgument) for a null group.
  QuantizeState(std::shared_ptr<ProcessGroup> group, QuantizedType type);

 private:
  friend class QuantizePass;
  friend BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  QuantizedType type_;
  ddp::ErrorMemory errors_;
};

/// Gradients travel as 8-bit numbers, a quarter of the bytes for any number of ranks: each rank
/// averages a part of the bucket in 32 bits and sends the mean, quantized, to all. What is lost, of
/// gradients and means, is added to the next gradients. Complex gradients are averaged as they are.
BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

}  // namespace unisono
