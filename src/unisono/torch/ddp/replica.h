#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/report/step_report.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/join.h"
#include "unisono/torch/ddp/logical_ranks/shard_buffers.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/non_finite.h"
#include "unisono/torch/ddp/parameter_drift.h"
#include "unisono/torch/ddp/wrapped_tensors.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// Names and defaults are PyTorch's. Equal on every rank.
struct DistributedDataParallelOptions {
  /// The one GPU that the module is on, and that of its outputs. For modules on GPUs, as in
  /// PyTorch: modules in CPU memory, or on several devices, are refused with them.
  std::vector<int> device_ids = {};
  std::optional<int> output_device = {};
  /// Gradients are reduced in buckets of about so many MiB.
  double bucket_cap_mb = 25;
  /// The first bucket's, smaller, so that communication starts early in backward.
  double first_bucket_cap_mb = 1;
  /// Copy rank 0's buffers (running means of batch norm, ...) to all ranks before a forward pass
  /// that follows one in training mode.
  bool broadcast_buffers = true;
  /// Allow parameters that a backward pass does not reach. Costs one more small all_reduce, and
  /// overlap where a bucket waits for a gradient that will not come.
  bool find_unused_parameters = false;
  /// Of each operation; by default the group's.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// What is done about gradients with an infinity or NaN, before they reach a parameter; the
  /// message names ranks and parameters. Costs a pass over the gradients' memory.
  NonFiniteGradients non_finite_gradients = NonFiniteGradients::kAllow;
  /// Gradients are means over all ranks' samples, of which each rank says how many it has: steps
  /// are made by run_step(), and ranks may have different numbers of samples and of batches.
  bool weigh_samples = false;
  /// V shards make up each global batch, on however many ranks, up to V: training then comes to the
  /// same bits (see for_each_shard()). 0: each rank's batch is a shard.
  int logical_ranks = 0;
  /// Seeds what is random in a shard, such as dropout, with logical_ranks.
  std::uint64_t shard_seed = 0;
  /// What becomes of the module's buffers, with logical_ranks.
  ShardBuffers shard_buffers = ShardBuffers::kFirstShard;
  /// What is done when the ranks' parameters are no longer the same. Each backward pass compares a
  /// 128th of them (of a small model all) at the end of the last bucket, so that a state that was
  /// loaded on one rank is found in the next pass. Not with a communication hook, under join(), and
  /// in passes under no_sync().
  ParameterDrift parameter_drift = ParameterDrift::kWarn;
};

namespace ddp {

class JoinedStep;
class LogicalStep;
class Reducer;

/// This rank's copy of a module, and what keeps it equal to the other ranks' copies: all of
/// DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  /// A collective operation: compares the ranks' modules, then copies rank 0's values to all.
  /// `sparse` are the parameters whose gradients may be.
  Replica(std::shared_ptr<ProcessGroup> group,
          const std::vector<NamedTensor>& parameters,
          const std::vector<NamedTensor>& buffers,
          const std::vector<at::Tensor>& sparse,
          const DistributedDataParallelOptions& options);
  ~Replica();

  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  Replica(Replica&&) = delete;
  Replica& operator=(Replica&&) = delete;

  /// Throws RefusedCall when the module's parameters, which are `parameters`, are no longer those
  /// that were wrapped. `named` gives them with names; it is called for the message only.
  void check_parameters(const std::vector<at::Tensor>& parameters,
                        const std::function<std::vector<NamedTensor>()>& named) const;

  /// Throws RefusedCall when a parameter or buffer was converted or resized.
  void before_forward(bool is_training);

  /// Sees to it that a backward pass from any of the outputs is noticed.
  void after_forward(std::span<at::Tensor* const> outputs);

  [[nodiscard]] bool is_synchronized() const { return is_synchronized_; }

  void set_synchronized(bool is_synchronized);

  [[nodiscard]] std::size_t n_buckets() const;

  [[nodiscard]] std::int64_t n_skipped() const;

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// This rank's shards. Throws RefusedCall without logical ranks, as do the next three.
  [[nodiscard]] ShardRange shards() const;

  void run_shards(const std::function<void(int)>& run_shard);

  [[nodiscard]] std::int64_t shard_step() const;

  void set_shard_step(std::int64_t step);

  /// A step with weights: `run_passes` makes this rank's passes, unless it has no samples. Returns
  /// whether any rank has.
  bool run_step(std::int64_t n_samples, const std::function<void()>& run_passes);

  /// From now on passes are announced, so that ranks without batches can take part. `joined`: all
  /// replicas of that join(), on every rank in the same order, as long as it lasts.
  void begin_join(const JoinOptions& options, const std::vector<Replica*>& joined);

  /// What a rank without batches does while others make a pass: the same operations, with zeros.
  /// Returns false when no rank makes one. Steps of optimizers that come before the pass are made,
  /// too.
  bool shadow_pass();

  /// A collective operation: copies the parameters and buffers of a rank that made the last pass.
  /// Returns that rank.
  int take_final_values();

  void end_join() noexcept;

  /// Steps of that optimizer are made under join() by ranks without batches, too. Throws
  /// RefusedCall where there is one, or gradients may be sparse.
  void set_joined_step(std::shared_ptr<JoinedStep> step);

  void drop_joined_step() noexcept;

  /// An optimizer's step begins: under join() ranks without batches learn of it. Returns one that
  /// has batches; nothing outside of join().
  std::optional<int> announce_step();

  /// What reduces full buckets from now on.
  void set_hook(CommHook hook);

  /// A collective operation: unisono::check_consistent() of the parameters.
  void check_consistent() const;

  /// A collective operation: where the time of all ranks' last steps went.
  [[nodiscard]] StepReport report() const;

  [[nodiscard]] const StepTimes& last_step() const;

 private:
  struct Join {
    JoinOptions options;
    const std::vector<Replica*>& joined;
    int root = 0;  // the lowest rank that made the last pass
  };

  // A rank's part in the pass that begins.
  struct Part {
    bool is_active = false;
    bool is_synchronized = false;
    bool is_training = false;
    bool has_thawed = false;  // parameters that the others don't know of
    bool is_step = false;     // no pass, but the step of an optimizer
    std::size_t model = 0;    // whose step; its number in join()
  };

  // Returns what the ranks that are active do, together; has_thawed: any of them.
  Part announce(const Part& mine);
  void shadow_step(int root) const;
  void before_weighted_forward(const Part& part);
  void take_votes();
  void check_step(std::int64_t n_samples) const;
  void run_own_passes(const std::function<void()>& run_passes);
  void prepare_pass(const Part& part, int root);
  void compare_thawed(const std::vector<NamedTensor>& thawed) const;
  // A collective operation where there is any.
  void take_in_thawed(bool is_any_thawed);
  void refuse_thaw_within_step() const;
  [[nodiscard]] std::string advice_on_frozen() const;
  void refuse(const std::optional<std::string>& change) const;
  [[nodiscard]] LogicalStep& logical() const;

  std::shared_ptr<ProcessGroup> group_;
  DistributedDataParallelOptions options_;
  CoalescedBroadcast buffers_;
  WrappedTensors wrapped_;
  std::vector<at::Tensor> sparse_;        // parameters whose gradients may be
  std::shared_ptr<Reducer> reducer_;      // shared with the callbacks of running backward passes
  std::unique_ptr<LogicalStep> logical_;  // with logical ranks
  bool is_synchronized_ = true;
  bool may_buffers_differ_ = false;
  std::optional<StepTimer::Time> forward_begin_;  // of a pass that has gradients
  std::optional<Join> join_;
  std::shared_ptr<JoinedStep> joined_step_;  // shared with the optimizer
  bool is_in_step_ = false;  // of this rank's own passes, with logical ranks or weigh_samples
  // With weigh_samples:
  bool are_votes_taken_ = false;
  int root_ = 0;  // the lowest rank that had samples in the last step
};

}  // namespace ddp
}  // namespace unisono
