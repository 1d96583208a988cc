#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/logical_ranks/shard_buffers.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

class Reducer;

/// Seeds what is random in a shard of a step; the same whatever rank runs it.
[[nodiscard]] std::uint64_t shard_seed(std::uint64_t seed, std::int64_t step, int shard);

struct LogicalStepOptions {
  int n_shards;
  std::uint64_t seed;
  ShardBuffers buffers;
  std::optional<std::chrono::milliseconds> timeout;
};

/// Runs a step of training as the shards of a global batch, so that its bits do not depend on how
/// many ranks there are.
class LogicalStep {
 public:
  LogicalStep(std::shared_ptr<ProcessGroup> group,
              const std::vector<NamedTensor>& buffers,
              const LogicalStepOptions& options);

  /// This rank's.
  [[nodiscard]] ShardRange shards() const { return shards_; }

  /// The number that the next step has.
  [[nodiscard]] std::int64_t step() const { return step_; }

  void set_step(std::int64_t step) { step_ = step; }

  /// A collective operation: calls `run_shard` for each of this rank's shards, the last one
  /// synchronized, with the random numbers of CPUs seeded for it, and has the reducer add the
  /// gradients. The random numbers then go on as before the call.
  void run(Reducer& reducer,
           const std::function<void(bool)>& set_synchronized,
           const std::function<void(int)>& run_shard);

 private:
  std::shared_ptr<ProcessGroup> group_;
  LogicalStepOptions options_;
  ShardRange shards_;
  BufferStep buffers_;
  std::int64_t step_ = 0;
};

}  // namespace unisono::ddp
