#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/logical_ranks/shards.h"
#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

class Reducer;

/// Returns the random seed of a shard in a step. The seed does not depend on the rank that runs the
/// shard.
[[nodiscard]] std::uint64_t shard_seed(std::uint64_t seed, std::int64_t step, int shard);

/// State of a module's buffers over the shards of a step. Owned by LogicalRanks. Not
/// thread-safe.
class BufferStep {
 public:
  /// `rule` selects the buffers after the step, and `n_shards` is the number of shards of all
  /// ranks.
  BufferStep(const std::vector<NamedTensor>& buffers, ShardBuffers rule, int n_shards);

  void begin();

  /// Called before each shard. Restores the buffers from the start of the step.
  void reset();

  /// Called after each shard. Records the shard's buffers.
  void take(int shard);

  /// A collective operation. Sets the buffers from the buffers of all shards, according to the
  /// policy.
  void end(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout);

 private:
  [[nodiscard]] std::vector<at::Tensor> flatten_means() const;
  void set_means(const std::vector<at::Tensor>& flat) const;
  [[nodiscard]] std::vector<at::Tensor> reduce(ProcessGroup& group,
                                               std::optional<std::chrono::milliseconds> timeout);

  std::vector<at::Tensor> buffers_;
  std::vector<std::vector<at::Tensor>> means_;  // averaged buffers, by type
  CoalescedBroadcast from_first_rank_;
  int n_shards_;
  ShardSums sums_;
  std::vector<at::Tensor> at_begin_;
  std::vector<at::Tensor> of_first_shard_;
};

/// Steps of training as the shards of a global batch, whose bits do not depend on how many ranks
/// there are, for models with logical_ranks.
class LogicalRanks : public PassFeature {
 public:
  explicit LogicalRanks(PassContext& context);

  /// This rank's shards.
  [[nodiscard]] ShardRange shards() const { return own_; }

  /// Number of the next step.
  [[nodiscard]] std::int64_t step() const { return step_; }

  void set_step(std::int64_t step) { step_ = step; }

  /// A collective operation. Calls `run_shard` for each of this rank's shards, with the CPU's
  /// random generator seeded for the shard; the last shard is synchronized, and the reducer adds
  /// the gradients. Restores the random generator at the end. If `run_shard` throws, the step is
  /// aborted and the exception is rethrown.
  void run(Reducer& reducer,
           const std::function<void(bool)>& set_synchronized,
           const std::function<void(int)>& run_shard);

  /// Throws Error(kInvalidArgument) for 16-bit parameters: their sums would be rounded between
  /// shards.
  void check(const std::vector<NamedTensor>& parameters) const override;

  /// Throws Error(kInvalidArgument) unless it is the shard's first.
  void on_backward(bool is_synchronized, bool is_untouched) override;

  /// Adds earlier shards' gradients of the parameter to those of the last shard.
  void adjust(std::size_t parameter, const at::Tensor& gradient) override;

  /// Returns true if an earlier shard has a gradient of the parameter.
  [[nodiscard]] bool has_gradient(std::size_t parameter) const override {
    return sums_.has(parameter);
  }

  /// The buckets have all that was kept.
  void wait() override { sums_.clear(); }

 private:
  static constexpr int kNone = -1;

  void begin_shard(int shard);
  void end_shard();
  BucketWork reduce(const GradBucket& bucket);
  [[nodiscard]] std::vector<at::Tensor> nodes_of_bucket(const GradBucket& bucket);
  [[noreturn]] void fail(const std::string& problem) const;

  PassContext& context_;
  int n_shards_;
  ShardRange own_;
  BufferStep buffers_;
  std::map<const void*, std::size_t> indices_;  // index of each parameter, by tensor
  ShardSums sums_;
  std::int64_t step_ = 0;
  int shard_ = kNone;  // present shard
  int n_passes_ = 0;
};

}  // namespace unisono::ddp
