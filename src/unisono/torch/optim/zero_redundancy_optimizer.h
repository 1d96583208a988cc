#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "unisono/torch/checkpoint/module_state.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/joined_step.h"
#include "unisono/torch/optim/overlapped_steps.h"
#include "unisono/torch/optim/parameterwise_optimizer.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"

namespace unisono::optim {

/// The rank that steps each parameter of `n_bytes`: the largest first, each goes to the rank that
/// has the fewest bytes yet. The same on every rank.
[[nodiscard]] std::vector<int> divide_parameters(std::span<const std::int64_t> n_bytes,
                                                 int world_size);

/// Which ranks step which parameters, and what brings the values to all.
class ParameterShares {
 public:
  /// Throws Error(kInvalidArgument) for a null group or no parameters.
  ParameterShares(std::shared_ptr<ProcessGroup> group,
                  const std::vector<::torch::optim::OptimizerParamGroup>& groups);

  /// The groups with this rank's parameters alone, of which one may have none.
  [[nodiscard]] std::vector<::torch::optim::OptimizerParamGroup> own_groups(
      const std::vector<::torch::optim::OptimizerParamGroup>& groups) const;

  /// note_step() for this rank's parameters, if it has any.
  void note_step(bool is_first) const;

  /// A collective operation: each rank's parameters to all.
  void share_values();

  /// A collective operation: the root's learning rates of the groups to all.
  void share_rates(std::vector<::torch::optim::OptimizerParamGroup>& groups, int root) const;

  /// The rank that steps each parameter, by the parameter's tensor.
  [[nodiscard]] const std::map<const void*, int>& owners() const { return owners_; }

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Of a whole state, what belongs to this rank's parameters and to the groups.
  [[nodiscard]] TensorState own_part(const TensorState& state,
                                     const ::torch::nn::Module& module) const;

 private:
  [[nodiscard]] bool is_own(const at::Tensor& parameter) const;

  std::shared_ptr<ProcessGroup> group_;
  std::vector<at::Tensor> own_;
  std::map<const void*, int> owners_;
  std::vector<CoalescedBroadcast> of_ranks_;
};

/// Divides an optimizer's state between the ranks (Rajbhandari et al., "ZeRO: Memory Optimizations
/// Toward Training Trillion Parameter Models", 2020, stage 1): each rank keeps the state of its
/// share of the parameters, steps those, and gets the other ranks' values. The parameters have the
/// bits that `Inner` on every rank gives them.
///
///     unisono::DistributedDataParallel model(Net(), group);
///     unisono::optim::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
///         group, model.parameters(), torch::optim::AdamOptions(1e-3));
///
/// `Inner`: any optimizer of LibTorch's or of unisono::optim whose steps of one parameter need no
/// other (so not LBFGS). Shares are whole parameters. Learning rates are set as of any optimizer,
/// on this object; options of groups are those of param_groups().
///
/// A step is a collective operation that sends the values of all parameters once. Under join() it
/// needs join_with(). With overlap_with() backward makes it.
template <class Inner>
class ZeroRedundancyOptimizer : public ::torch::optim::Optimizer {
  static_assert(!std::is_same_v<Inner, ::torch::optim::LBFGS>,
                "LBFGS steps all parameters together, so its state can't be divided");

 public:
  /// A local call; parameters and groups are the same on every rank. Throws as distinct_groups().
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

  /// From now on the backward passes of `model`, a DistributedDataParallel of the same group whose
  /// parameters these are, make the steps: each rank steps a parameter when its bucket is averaged,
  /// and sends the values while backward computes the rest. Before the first backward pass, on
  /// every rank. step() then makes none: it checks that one synchronized backward pass has. The
  /// parameters have the same bits.
  ///
  /// Gradients can't be changed between backward() and step() (clipping, GradScaler), each pass
  /// must reach all parameters, and a backward pass that throws leaves a step half made, after
  /// which the next one refuses to go on. Learning rates are those that this object has in
  /// backward().
  ///
  /// Throws RefusedCall when the model has a communication hook, or has made a pass;
  /// Error(kInvalidArgument) for a second call. join() of the model is refused then.
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

  /// From now on step() may be called under join() of `model`, a DistributedDataParallel of the
  /// same group whose parameters these are: ranks that are done step their share, too, at the
  /// learning rates of one that is not. A local call, on every rank.
  ///
  /// Throws RefusedCall where the model's gradients may be sparse, or another optimizer is tied to
  /// it; Error(kInvalidArgument) for a second call, or one beside overlap_with().
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

  /// The options of the groups, which all ranks have alike: for parts_to_save()'s `common`.
  [[nodiscard]] TensorState common_state(const ::torch::nn::Module& module) {
    take_options();
    TensorState common;
    add_state(common, "options.", state_below(optimizer_state(inner_, module), "options."));
    return common;
  }

  /// The state of this rank's parameters, under their names: for parts_to_save()'s `own`.
  [[nodiscard]] TensorState own_state(const ::torch::nn::Module& module) const {
    TensorState own;
    add_state(own, "state.", state_below(optimizer_state(inner_, module), "state."));
    return own;
  }

  /// Goes on from the common and own states of all ranks, of however many, or from
  /// optimizer_state() of a plain `Inner`. Throws as load_optimizer_state().
  void load_state(const ::torch::nn::Module& module, const TensorState& state) {
    load_optimizer_state(inner_, module, shares_.own_part(state, module));
    for (std::size_t i = 0; i < param_groups().size(); ++i) {
      param_groups()[i].set_options(inner_.param_groups()[i].options().clone());
    }
  }

  /// This rank's part of the optimizer.
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

  // Under join() `root` is a rank that is not done.
  void step_together(std::optional<int> root) {
    if (root) {
      shares_.share_rates(param_groups(), *root);
    }
    take_options();
    note_step();
    inner_.step();
    shares_.share_values();
  }

  // Inner steps what its groups hold, so for a while they hold no more.
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

  // Inner's state does not tell: some keep none.
  void note_step() {
    shares_.note_step(!std::exchange(has_stepped_, true) && inner_.state().empty());
  }

  // A scheduler may have set this object's.
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
