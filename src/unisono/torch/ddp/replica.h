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
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/options.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace torch::nn {
class Module;
}

namespace unisono::ddp {

class JoinSession;
class LogicalRanks;
struct PassPart;
class Reducer;
class Replica;
class Unfreezing;
class WeightedSamples;
class WrappedTensors;

/// Returns the weights of the module's Embedding and EmbeddingBag layers that were built with
/// sparse(true).
[[nodiscard]] std::vector<at::Tensor> sparse_parameters(const torch::nn::Module& module);

/// Implementation of unisono::join() for at least one replica.
int run_joined(const std::vector<Replica*>& replicas,
               const JoinOptions& options,
               const std::function<void()>& loop);

/// Ties an optimizer with a collective step() to a model, so that finished ranks under join() take
/// part in the step. Shared by the optimizer and the model, which may be destroyed in either order.
/// Not thread-safe.
class JoinedStep {
 public:
  /// Called on a finished rank while the other ranks step; `root` is a rank that steps.
  using Shadow = std::function<void(int root)>;

  /// Without `shadow`, finished ranks cannot take part in the step, and join() of the model is
  /// refused.
  explicit JoinedStep(Shadow shadow = nullptr);

  /// Called by each step() before its own operations. Under join(), notifies the finished ranks and
  /// returns a rank that has batches. Returns std::nullopt outside of join().
  std::optional<int> announce();

  [[nodiscard]] bool has_shadow() const { return shadow_ != nullptr; }

  /// Repeats the operations of one optimizer step on a rank that has no batch left. `root` is a
  /// rank that makes the step.
  void run_shadow(int root) const { shadow_(root); }

  /// Sets the model; null when the model is destroyed.
  void set_model(Replica* replica) { replica_ = replica; }

  /// Called when the optimizer is destroyed; unties the optimizer from the model.
  void stop();

 private:
  Shadow shadow_;
  Replica* replica_ = nullptr;
};

/// This rank's copy of a module, and the machinery that keeps the copy equal to the other ranks'
/// copies: the part of DistributedDataParallel that does not depend on the module's type.
///
/// Owned by DistributedDataParallel; holds the group, the module's tensors and the Reducer. Not
/// thread-safe. Functions that change state between ranks are collective operations and throw
/// communication errors.
class Replica {
 public:
  /// A collective operation. Compares the ranks' modules, then copies rank 0's values to all ranks.
  /// `sparse` lists the parameters that may have sparse gradients.
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

  /// Throws RefusedCall if the module's present `parameters` are not the wrapped ones. `named`
  /// returns the parameters with names and is called only for the message.
  void check_parameters(const std::vector<at::Tensor>& parameters,
                        const std::function<std::vector<NamedTensor>()>& named) const;

  /// Prepares a forward pass: copies buffers and rebuilds buckets where needed. Throws RefusedCall
  /// if a parameter or buffer was converted or resized.
  void before_forward(bool is_training);

  /// Attaches a signal to each output, so that a backward pass from any output notifies the
  /// reducer.
  void after_forward(std::span<at::Tensor* const> outputs);

  [[nodiscard]] bool is_synchronized() const { return is_synchronized_; }

  /// Sets whether later passes average gradients over the ranks.
  void set_synchronized(bool is_synchronized);

  [[nodiscard]] std::size_t n_buckets() const;

  [[nodiscard]] std::int64_t n_skipped() const;

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// This rank's shards in ascending order. Throws RefusedCall without logical ranks, as do the
  /// next three functions.
  [[nodiscard]] std::vector<int> shards() const;

  /// Makes a step: calls `run_shard` for each shard of this rank, and averages the gradients over
  /// all shards of all ranks.
  void run_shards(const std::function<void(int)>& run_shard);

  [[nodiscard]] std::int64_t shard_step() const;

  /// Sets the number of the next step.
  void set_shard_step(std::int64_t step);

  /// Makes a step with weights: calls `run_passes` for this rank's passes, unless the rank has no
  /// samples. Returns true if any rank has samples.
  bool run_step(std::int64_t n_samples, const std::function<void()>& run_passes);

  /// Begins join(): passes are announced from now on, so that finished ranks can take part.
  /// `joined` lists all replicas of the join(), on every rank in the same order, and must stay
  /// valid until end_join().
  void begin_join(const JoinOptions& options, const std::vector<Replica*>& joined);

  /// Null outside of join().
  [[nodiscard]] JoinSession* join_session() const { return join_.get(); }

  /// A collective operation. Copies the parameters and buffers of a rank that made the last pass,
  /// and returns that rank.
  int take_final_values();

  /// Ends join(): passes are no longer announced.
  void end_join() noexcept;

  /// Ties the optimizer to the model: finished ranks under join() take part in its steps. Throws
  /// RefusedCall if an optimizer is tied already or gradients may be sparse.
  void set_joined_step(std::shared_ptr<JoinedStep> step);

  /// Unties the optimizer of set_joined_step().
  void drop_joined_step() noexcept;

  /// Called at the start of an optimizer's step. Under join(), notifies the finished ranks and
  /// returns a rank that has batches. Returns std::nullopt outside of join().
  std::optional<int> announce_step();

  /// Sets the hook that reduces full buckets.
  void set_hook(CommHook hook);

  /// A collective operation. Calls unisono::check_consistent() for the parameters.
  void check_consistent() const;

  /// A collective operation. Returns the times of all ranks' last steps.
  [[nodiscard]] StepReport report() const;

  [[nodiscard]] const StepTimes& last_step() const;

  /// Null where no optimizer is tied to the model.
  [[nodiscard]] const JoinedStep* joined_step() const { return joined_step_.get(); }

  /// The operations before a pass, with `root` as the rank whose buffers count.
  void prepare_pass(const PassPart& part, int root);

  /// Makes the step of the optimizer that is tied to the model, which `root` has announced.
  void shadow_step(int root) const;

  [[nodiscard]] Reducer& reducer() const { return *reducer_; }

  [[nodiscard]] const DistributedDataParallelOptions& options() const { return options_; }

 private:
  void before_weighted_forward(const PassPart& part);
  void take_votes();
  void check_step(std::int64_t n_samples) const;
  void run_own_passes(const std::function<void()>& run_passes);
  void refuse(const std::optional<std::string>& change) const;
  [[nodiscard]] LogicalRanks& logical() const;

  std::shared_ptr<ProcessGroup> group_;
  DistributedDataParallelOptions options_;
  CoalescedBroadcast buffers_;
  std::unique_ptr<WrappedTensors> wrapped_;
  bool has_sparse_;
  std::shared_ptr<Reducer> reducer_;  // shared with the callbacks of running backward passes
  std::unique_ptr<Unfreezing> unfreezing_;
  LogicalRanks* logical_ = nullptr;      // the reducer's, with logical ranks
  WeightedSamples* weighted_ = nullptr;  // the reducer's, with weigh_samples
  bool is_synchronized_ = true;
  bool may_buffers_differ_ = false;
  std::optional<StepTimer::Time> forward_begin_;  // start of a forward pass with gradients
  std::unique_ptr<JoinSession> join_;
  std::shared_ptr<JoinedStep> joined_step_;  // shared with the optimizer
  bool is_in_step_ = false;  // true while run_shards() or run_step() makes this rank's passes
  int root_ = 0;  // with weigh_samples: the lowest rank that had samples in the last step
};

}  // namespace unisono::ddp
