#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::optim {

/// Makes the steps of an optimizer that divides the parameters among the ranks while backward
/// computes. When a bucket is full, the previous bucket is awaited; each rank steps its parameters
/// in that bucket and starts to send the new values. The rest of backward hides the communication.
///
/// Shared by the optimizer and the model's hook. Used on the thread that calls backward(). Every
/// rank calls the same operations in the order of the buckets. Misuse throws
/// Error(kInvalidArgument).
class OverlappedSteps {
 public:
  /// Steps these parameters of this rank. Their gradients are complete.
  using Step = std::function<void(const std::vector<at::Tensor>& parameters)>;

  /// `owners`: the rank that steps each parameter, by the parameter's tensor.
  OverlappedSteps(std::shared_ptr<ProcessGroup> group,
                  std::map<const void*, int> owners,
                  Step step);

  /// The model's communication hook. See CommHook.
  [[nodiscard]] BucketWork reduce(const GradBucket& bucket);

  /// Implements the optimizer's step(). Throws Error(kInvalidArgument) unless exactly one backward
  /// pass since the last call has made the step, for all parameters.
  void end_step();

  /// Called when the optimizer is destroyed. Later passes throw.
  void stop() { step_ = nullptr; }

 private:
  // Values of one rank's parameters of a bucket, in flight.
  struct Sent {
    int root;
    std::vector<at::Tensor> parameters;
    at::Tensor values;
    Work work;
  };

  void begin_pass();
  void finish_bucket();
  void share(const std::vector<at::Tensor>& parameters, int root, const GradBucket& bucket);
  void finish_pass();

  std::shared_ptr<ProcessGroup> group_;
  std::map<const void*, int> owners_;
  Step step_;
  std::optional<GradBucket> bucket_;  // bucket in reduction
  Work work_;
  std::vector<Sent> sent_;
  bool is_in_pass_ = false;
  int n_passes_ = 0;       // passes since the last end_step()
  std::string unreached_;  // a bucket of the last pass with a parameter that has no gradient
};

/// Returns the rank that steps each parameter, given the sizes `n_bytes`. Parameters are assigned
/// in descending order of size, each to the rank with the fewest bytes so far. The result is equal
/// on all ranks.
[[nodiscard]] std::vector<int> divide_parameters(std::span<const std::int64_t> n_bytes,
                                                 int world_size);

/// Assignment of parameters to ranks, and the operations that distribute the new values. Owned by a
/// ZeroRedundancyOptimizer. Not thread-safe. Throws communication errors.
class ParameterShares {
 public:
  /// Throws Error(kInvalidArgument) for a null group or an empty list of parameters.
  ParameterShares(std::shared_ptr<ProcessGroup> group,
                  const std::vector<::torch::optim::OptimizerParamGroup>& groups);

  /// Returns the groups reduced to this rank's parameters. A group may be empty.
  [[nodiscard]] std::vector<::torch::optim::OptimizerParamGroup> own_groups(
      const std::vector<::torch::optim::OptimizerParamGroup>& groups) const;

  /// Calls optim::note_step() for this rank's parameters, if any.
  void note_step(bool is_first) const;

  /// A collective operation. Sends each rank's parameters to all ranks.
  void share_values();

  /// A collective operation. Sends the root's learning rates of the groups to all ranks.
  void share_rates(std::vector<::torch::optim::OptimizerParamGroup>& groups, int root) const;

  /// The rank that steps each parameter, by the parameter's tensor.
  [[nodiscard]] const std::map<const void*, int>& owners() const { return owners_; }

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Returns the entries of a whole state that belong to this rank's parameters and to the groups.
  [[nodiscard]] TensorState own_part(const TensorState& state,
                                     const ::torch::nn::Module& module) const;

 private:
  [[nodiscard]] bool is_own(const at::Tensor& parameter) const;

  std::shared_ptr<ProcessGroup> group_;
  std::vector<at::Tensor> own_;
  std::map<const void*, int> owners_;
  std::vector<CoalescedBroadcast> of_ranks_;
};

/// Divides an optimizer's state among the ranks (Rajbhandari et al., "ZeRO: Memory Optimizations
/// Toward Training Trillion Parameter Models", 2020, stage 1): each rank keeps the state of a share
/// of the parameters, steps these parameters, and receives the other ranks' values. The parameters
/// have the same bits as with `Inner` on every rank.
///
///     unisono::DistributedDataParallel model(Net(), group);
///     unisono::optim::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
///         group, model.parameters(), torch::optim::AdamOptions(1e-3));
///
/// `Inner`: any optimizer of LibTorch or unisono::optim with steps that treat each parameter
/// separately (so not LBFGS). Shares consist of whole parameters. Set learning rates on this
/// object, as for any optimizer; the options of groups come from param_groups().
///
/// Owner and lifetime: owned by the caller; holds the group. The destructor detaches the object
/// from a model of overlap_with() or join_with().
///
/// Threads: not thread-safe, like LibTorch's optimizers.
///
/// Errors: a step is a collective operation that sends the values of all parameters once, and
/// throws the errors of that operation. Under join() a step needs join_with(). With overlap_with(),
/// backward makes the step.
template <class Inner>
class ZeroRedundancyOptimizer : public ::torch::optim::Optimizer {
  static_assert(!std::is_same_v<Inner, ::torch::optim::LBFGS>,
                "LBFGS steps all parameters together, so its state can't be divided");

 public:
  /// A local call. Parameters and groups are equal on every rank. Throws the errors of
  /// distinct_groups().
  template <class Options>
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                          const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                          const Options& defaults)
      : ZeroRedundancyOptimizer(
            std::move(group), Inner(distinct_groups(groups), defaults), defaults) {}

  template <class Options>
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                          const std::vector<at::Tensor>& parameters,
                          const Options& defaults)
      : ZeroRedundancyOptimizer(
            std::move(group), {::torch::optim::OptimizerParamGroup(parameters)}, defaults) {}

  ~ZeroRedundancyOptimizer() override {
    if (overlapped_) {
      overlapped_->stop();
    }
    if (joined_) {
      joined_->stop();
    }
  }

  ZeroRedundancyOptimizer(const ZeroRedundancyOptimizer&) = delete;
  ZeroRedundancyOptimizer& operator=(const ZeroRedundancyOptimizer&) = delete;
  ZeroRedundancyOptimizer(ZeroRedundancyOptimizer&&) = delete;
  ZeroRedundancyOptimizer& operator=(ZeroRedundancyOptimizer&&) = delete;

  /// Lets the backward passes of `model` make the steps. `model` is a DistributedDataParallel of
  /// the same group with these parameters. Each rank steps a parameter when the parameter's bucket
  /// is averaged, and sends the values while backward computes the rest. Call before the first
  /// backward pass, on every rank. step() then only checks that exactly one synchronized backward
  /// pass has made the step. The parameters have the same bits as without overlap.
  ///
  /// Gradients cannot be changed between backward() and step() (clipping, GradScaler), and each
  /// pass must reach all parameters. A backward pass that throws leaves the step incomplete; the
  /// next pass is refused then. The learning rates are read from this object during backward().
  ///
  /// Throws RefusedCall if the model has a communication hook or has made a pass, and
  /// Error(kInvalidArgument) for a second call. join() of the model is refused afterwards.
  template <class Model>
  void overlap_with(Model& model) {
    refuse_second("overlap_with()");
    auto overlapped = std::make_shared<OverlappedSteps>(
        shares_.group(), shares_.owners(), [this](const std::vector<at::Tensor>& parameters) {
          step_some(parameters);
        });
    model.register_comm_hook(overlapped, [](OverlappedSteps& steps, const GradBucket& bucket) {
      return steps.reduce(bucket);
    });
    overlapped_ = std::move(overlapped);
    joined_ = std::make_shared<ddp::JoinedStep>();
    model.tie(joined_);
  }

  /// Allows step() under join() of `model`, a DistributedDataParallel of the same group with these
  /// parameters. Finished ranks step their share as well, at the learning rates of a rank that has
  /// batches. A local call, on every rank.
  ///
  /// Throws RefusedCall if the model may have sparse gradients or another optimizer is tied to the
  /// model, and Error(kInvalidArgument) for a second call or after overlap_with().
  template <class Model>
  void join_with(Model& model) {
    refuse_second("join_with()");
    auto joined = std::make_shared<ddp::JoinedStep>([this](int root) { step_together(root); });
    model.tie(joined);
    joined_ = std::move(joined);
  }

  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    if (overlapped_) {
      overlapped_->end_step();
      return loss;
    }
    step_together(joined_ ? joined_->announce() : std::nullopt);
    return loss;
  }

  /// Returns the options of the groups, which are equal on all ranks: for parts_to_save()'s
  /// `common`.
  [[nodiscard]] TensorState common_state(const ::torch::nn::Module& module) {
    take_options();
    TensorState common;
    add_state(common, "options.", state_below(optimizer_state(inner_, module), "options."));
    return common;
  }

  /// Returns the state of this rank's parameters, under their names: for parts_to_save()'s `own`.
  [[nodiscard]] TensorState own_state(const ::torch::nn::Module& module) const {
    TensorState own;
    add_state(own, "state.", state_below(optimizer_state(inner_, module), "state."));
    return own;
  }

  /// Continues from the common and own states of all ranks, saved by any number of ranks, or from
  /// optimizer_state() of a plain `Inner`. Throws the errors of load_optimizer_state().
  void load_state(const ::torch::nn::Module& module, const TensorState& state) {
    load_optimizer_state(inner_, module, shares_.own_part(state, module));
    for (std::size_t i = 0; i < param_groups().size(); ++i) {
      param_groups()[i].set_options(inner_.param_groups()[i].options().clone());
    }
  }

  /// The optimizer of this rank's share.
  [[nodiscard]] const Inner& inner() const { return inner_; }

 private:
  template <class Options>
  ZeroRedundancyOptimizer(std::shared_ptr<ProcessGroup> group,
                          const Inner& whole,
                          const Options& defaults)
      : Optimizer(whole.param_groups(), std::make_unique<Options>(defaults)),
        shares_(std::move(group), whole.param_groups()),
        inner_(shares_.own_groups(whole.param_groups()), defaults) {
    take_options();
  }

  void refuse_second(const char* call) const {
    if (overlapped_ || joined_) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string("ZeroRedundancyOptimizer: ") + call + " is called after " +
                      (overlapped_ ? "overlap_with()" : "join_with()") +
                      "; there is one call of either");
    }
  }

  // Under join(), `root` is a rank that has batches.
  void step_together(std::optional<int> root) {
    if (root) {
      shares_.share_rates(param_groups(), *root);
    }
    take_options();
    note_step();
    inner_.step();
    shares_.share_values();
  }

  // Inner steps all parameters of its groups, so the groups are reduced to `parameters` during the
  // step.
  void step_some(const std::vector<at::Tensor>& parameters) {
    take_options();
    note_step();
    std::vector<std::vector<at::Tensor>> whole;
    for (auto& group : inner_.param_groups()) {
      whole.push_back(std::exchange(group.params(), {}));
      std::ranges::copy_if(
          whole.back(), std::back_inserter(group.params()), [&](const at::Tensor& own) {
            return std::ranges::any_of(
                parameters, [&](const at::Tensor& parameter) { return parameter.is_same(own); });
          });
    }
    inner_.step();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      inner_.param_groups()[i].params() = std::move(whole[i]);
    }
  }

  // Inner's state alone does not reveal the first step, because some optimizers keep no state.
  void note_step() {
    shares_.note_step(!std::exchange(has_stepped_, true) && inner_.state().empty());
  }

  // A scheduler may have changed the options of this object.
  void take_options() {
    for (std::size_t i = 0; i < param_groups().size(); ++i) {
      inner_.param_groups()[i].set_options(param_groups()[i].options().clone());
    }
  }

  ParameterShares shares_;
  Inner inner_;
  bool has_stepped_ = false;
  std::shared_ptr<OverlappedSteps> overlapped_;  // shared with the model's hook
  std::shared_ptr<ddp::JoinedStep> joined_;      // shared with the model
};

}  // namespace unisono::optim
