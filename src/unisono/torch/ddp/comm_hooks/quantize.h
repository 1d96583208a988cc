#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"

namespace unisono {

/// Number format of gradients in transit. Blocks of 128 8-bit numbers share a scale.
enum class QuantizedType : std::uint8_t {
  kBFloat16,  ///< 16 bits: error up to 1/256 of each gradient.
  kInt8,   ///< 254 equal steps over the block's range: error up to 1/254 of the largest magnitude.
  kFloat8  ///< E4M3: error up to 1/16 of each gradient, including small ones.
};

/// State of quantize_hook() between passes, for a single model.
///
/// Owned by the DistributedDataParallel that the hook is registered with. If there are several
/// nodes and some node has several ranks, the state owns a group of this node's ranks, which the
/// destructor leaves. Used by a single backward pass at a time.
class QuantizeState {
 public:
  /// A collective operation of the group. Throws Error(kInvalidArgument) for a null group.
  QuantizeState(std::shared_ptr<ProcessGroup> group, QuantizedType type);

 private:
  friend class QuantizePass;
  friend BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

  // Range of chunks; a rank sends the node's sums of these chunks on behalf of the node.
  struct CarriedChunks {
    int begin;
    int end;
  };

  std::shared_ptr<ProcessGroup> group_;
  QuantizedType type_;
  int n_nodes_ = 1;
  std::vector<CarriedChunks> carried_;  // by rank
  std::vector<int> node_ranks_;         // ascending
  std::shared_ptr<ProcessGroup> node_;  // group of node_ranks_ if used; otherwise null
  ddp::ErrorMemory errors_;
};

/// Averages gradients that travel between nodes as 16-bit or 8-bit numbers: half or a quarter of
/// the bytes, for any number of nodes and ranks.
///
/// The ranks of a node first add the gradients in 32 bits. Each rank then receives the quantized
/// sums of all nodes for one chunk of the bucket, averages the sums in 32 bits and sends the
/// quantized mean to all ranks. The bits are equal on all ranks. The losses of sums and means are
/// added to the next gradients. On a single node, and for complex gradients, allreduce_hook() is
/// used, which is lossless.
BucketWork quantize_hook(QuantizeState& state, const GradBucket& bucket);

}  // namespace unisono
