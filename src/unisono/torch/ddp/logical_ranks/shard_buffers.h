#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/logical_ranks/shard_sums.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// What a module's buffers (running means of batch norm, ...) become in a step of several shards,
/// each of which starts with those that the step started with.
enum class ShardBuffers : std::uint8_t {
  kFirstShard,  ///< What the first shard makes of them, as rank 0's count in plain data
                ///< parallelism.
  kMean  ///< The mean over all shards, of those of floating point; of others the first shard's.
};

namespace ddp {

/// A module's buffers over the shards of a step.
class BufferStep {
 public:
  BufferStep(const std::vector<NamedTensor>& buffers, ShardBuffers rule, int n_shards);

  void begin();

  /// Before each shard: what the step began with.
  void reset();

  /// After each shard.
  void take(int shard);

  /// A collective operation: what the shards make of the buffers.
  void end(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout);

 private:
  [[nodiscard]] std::vector<at::Tensor> flatten_means() const;
  void set_means(const std::vector<at::Tensor>& flat) const;
  [[nodiscard]] std::vector<at::Tensor> reduce(ProcessGroup& group,
                                               std::optional<std::chrono::milliseconds> timeout);

  std::vector<at::Tensor> buffers_;
  std::vector<std::vector<at::Tensor>> means_;  // those to be averaged, by type
  CoalescedBroadcast from_first_rank_;
  int n_shards_;
  ShardSums sums_;
  std::vector<at::Tensor> at_begin_;
  std::vector<at::Tensor> of_first_shard_;
};

}  // namespace ddp
}  // namespace unisono
