#pragma once

// The members of ParameterwiseOptimizer, for the file that instantiates it.

#include <memory>
#include <utility>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/parameterwise_optimizer.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"

namespace unisono::optim {

template <class Options, class State>
at::Tensor ParameterwiseOptimizer<Options, State>::step(LossClosure closure) {
  const c10::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  bool is_noted = false;
  const bool is_first = state_.empty();
  for (::torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) {
        TORCH_CHECK(gradient.layout() == at::kStrided && gradient.device().is_cpu(),
                    "this optimizer takes dense gradients in CPU memory; one is ",
                    gradient.layout(),
                    " on ",
                    gradient.device());
        if (!std::exchange(is_noted, true)) {
          note_step(parameter, is_first);
        }
        step_parameter(parameter, options, state_of(parameter));
      }
    }
  }
  return loss;
}

template <class Options, class State>
State& ParameterwiseOptimizer<Options, State>::state_of(const at::Tensor& parameter) {
  std::unique_ptr<::torch::optim::OptimizerParamState>& slot =
      state_[parameter.unsafeGetTensorImpl()];
  if (slot == nullptr) {
    slot = std::make_unique<State>();
  }
  return static_cast<State&>(*slot);
}

template <class Options, class State>
void ParameterwiseOptimizer<Options, State>::save(
    ::torch::serialize::OutputArchive& archive) const {
  ::torch::optim::serialize<State, Options>(archive, *this);
}

template <class Options, class State>
void ParameterwiseOptimizer<Options, State>::load(::torch::serialize::InputArchive& archive) {
  ::torch::optim::serialize<State, Options>(archive, *this);
}

}  // namespace unisono::optim
