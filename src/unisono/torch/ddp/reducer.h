#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/drift_watch.h"
#include "unisono/torch/ddp/finite_watch.h"
#include "unisono/torch/ddp/gradient_hooks.h"
#include "unisono/torch/ddp/gradient_order.h"
#include "unisono/torch/ddp/logical_ranks/shard_gradients.h"
#include "unisono/torch/ddp/non_finite.h"
#include "unisono/torch/ddp/parameter_drift.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/ddp/pass_progress.h"
#include "unisono/torch/ddp/sample_votes.h"
#include "unisono/torch/ddp/sparse_reducer.h"
#include "unisono/torch/ddp/step_mistakes.h"
#include "unisono/torch/ddp/unreached_parameters.h"
#include "unisono/torch/ddp/used_parameters.h"
#include "unisono/torch/ddp/weighted_step.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

struct ReducerOptions {
  BucketCaps caps = {};
  bool find_unused_parameters = false;
  std::optional<std::chrono::milliseconds> timeout = {};
  NonFiniteGradients non_finite = NonFiniteGradients::kAllow;
  int n_shards = 0;  ///< With logical ranks; else 0.
  bool weighs_samples = false;
  std::vector<bool> is_sparse = {};  ///< Of each parameter: whether its gradients may be sparse.
  ParameterDrift drift = ParameterDrift::kWarn;
};

/// Averages the parameters' gradients over the ranks of a group while backward computes them.
///
/// In a synchronized pass each gradient is deposited in its bucket by its hook, buckets are
/// launched in the order of their numbers as they fill, and the end of backward waits for all of
/// them. Every rank launches every bucket in every such pass, whatever happens to it: where a pass
/// ends with an exception, the other ranks learn that from the last bucket. Sparse gradients are
/// reduced after all buckets.
///
/// Not thread-safe; hooks run on the thread that calls backward().
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  /// `parameters` all require a gradient, and are the same on every rank.
  Reducer(std::shared_ptr<ProcessGroup> group,
          std::vector<NamedTensor> parameters,
          const ReducerOptions& options);

  /// From now on averages these parameters' gradients, too, `is_sparse` of each. On every rank the
  /// same, outside of passes; buckets are laid out anew. The hook stays.
  ///
  /// Throws Error(kInvalidArgument), and changes nothing, for types that the options don't allow.
  void add(const std::vector<NamedTensor>& parameters, const std::vector<bool>& is_sparse);

  /// What errors of ranks that called different operations end with.
  void set_advice(std::string advice) { advice_ = std::move(advice); }

  /// To be called before each synchronized forward pass, outside of backward. After the first
  /// pass this is where buckets are rebuilt in the order in which rank 0 saw the gradients (a
  /// collective operation).
  ///
  /// Throws Error(kInvalidArgument) on every rank, with the names of the parameters that an earlier
  /// backward did not reach, and on which ranks, unless the options allow that.
  void before_forward();

  /// A backward pass starts from an output of the module. A pass that is not synchronized leaves
  /// the gradients where autograd puts them.
  void on_backward(bool is_synchronized);

  /// What reduces full buckets from now on.
  ///
  /// Throws Error(kInvalidArgument) when there is a hook already, or a pass has begun before.
  void set_hook(CommHook hook);

  /// Takes part in the other ranks' synchronized pass with gradients of zero. This rank's own,
  /// where they are views of the buckets, become the averages; all do where that was asked for. To
  /// be called outside of backward, after before_forward().
  void shadow_pass();

  // With logical ranks a step is so many passes, of which the rank's last is synchronized.

  /// To be called before the shard's forward pass: drops all gradients.
  void begin_shard(int shard);

  /// After its backward pass. Throws Error(kInvalidArgument) unless that was one.
  void end_shard();

  // With weights, a step has passes of which one is synchronized.

  /// Drops all gradients. To be called after before_forward().
  void begin_step(std::int64_t n_samples);

  /// A forward pass in training mode.
  void note_changed_buffers() { weighted_->note_changed_buffers(); }

  /// Takes part in the other ranks' step without samples, and gets its gradients; where no rank has
  /// any, all buckets but the first are left out.
  void shadow_step();

  /// After the passes. Throws Error(kInvalidArgument) unless one was synchronized.
  void end_step() { weighted_->end(); }

  /// What the ranks said of the last step, the same on all ranks; none before the first.
  [[nodiscard]] const std::optional<SampleVotes>& votes();

  /// Ends the step, or the shard, here. The other ranks, which may wait for this one, throw
  /// kMismatch.
  void give_up_step();

  /// While paused, the ranks' parameters are not compared; the same on every rank.
  void pause_comparison(bool is_paused) { drift_.pause(is_paused); }

  /// What averages are multiplied by.
  void set_gradient_factor(double factor) { gradient_factor_ = factor; }

  /// Whether shadow_pass() leaves the averages as this rank's gradients, as other passes do.
  void set_averages_of_shadows(bool is_on) { has_averages_of_shadows_ = is_on; }

  /// Whether passes are synchronized that reach parameters past the module's outputs (a penalty on
  /// the weights, say).
  void set_synchronized(bool is_synchronized) { is_synchronized_by_default_ = is_synchronized; }

  [[nodiscard]] std::size_t n_buckets() const { return buckets_->size(); }

  /// Passes whose gradients were dropped, as they were not finite.
  [[nodiscard]] std::int64_t n_skipped() const { return finite_.n_skipped(); }

  /// Where the time of steps goes. Backward passes and what they wait for are added here, forward
  /// passes and what is waited for before them by the caller.
  [[nodiscard]] StepTimer& timer() { return timer_; }

 private:
  class PassEnd;

  [[nodiscard]] bool is_sparse(std::size_t parameter) const {
    return sparse_.is_sparse()[parameter];
  }

  void deposit(std::size_t parameter);
  void begin_pass(bool is_synchronized, bool is_untouched);
  void synchronize_pass();
  void on_gradient(std::size_t parameter);
  void on_second_gradient(std::size_t parameter);
  void launch(std::size_t bucket, PassStatus status);
  void launch_full_buckets();
  void launch_rest(PassStatus status);
  void wait_for_first() const;
  void wait_for_sums();
  void finish_pass();
  void finish_synchronized_pass(bool is_shadow);
  void reduce_sparse(bool is_shadow);
  void find_unreached();
  void drop_gradients();
  void drop_non_finite();
  void begin_shadow();
  void point_at_views();
  void give_up_pass() noexcept;
  void await_given_up_pass();
  void check_types(const std::vector<NamedTensor>& parameters) const;
  void use_shards();
  [[nodiscard]] std::unique_ptr<BucketSet> make_buckets(
      const std::vector<NamedTensor>& parameters,
      const std::vector<bool>& is_sparse,
      const std::vector<std::size_t>& order) const;

  std::shared_ptr<ProcessGroup> group_;
  std::vector<NamedTensor> parameters_;
  ReducerOptions options_;
  CommHook hook_;  // None: buckets are averaged by an all_reduce.
  bool has_begun_ = false;
  FiniteWatch finite_;
  DriftWatch drift_;
  SparseReducer sparse_;
  UsedParameters used_;
  double gradient_factor_ = 1;
  bool has_averages_of_shadows_ = false;
  std::optional<ShardGradients> shards_;
  std::optional<WeightedStep> weighted_;
  StepMistakes mistakes_;
  optim::OptimizerWatch optimizer_watch_;
  std::int64_t n_passes_ = 0;
  std::int64_t n_gradient_bytes_ = 0;  // of all parameters
  StepTimer timer_;
  StepTimer::Time backward_begin_ = {};  // of the last pass
  bool is_step_reduced_ = false;         // with logical ranks or weights
  GradientOrder order_;
  std::unique_ptr<BucketSet> buckets_;

  std::optional<PassProgress> progress_;  // while a backward pass runs
  bool is_synchronized_ = false;
  bool is_rest_launched_ = false;
  bool is_given_up_ = false;  // the last pass was, and its operations may be in flight

  bool is_synchronized_by_default_ = true;
  UnreachedParameters unreached_;
  std::string advice_;
  GradientHooks hooks_;
};

}  // namespace unisono::ddp
