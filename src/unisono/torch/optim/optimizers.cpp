// Definitions of ParameterwiseOptimizer's members, for the file that instantiates the template.

#include "unisono/torch/optim/optimizers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/base/error.h"
#include "unisono/torch/optim/optimizer_steps.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

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

using ::torch::optim::OptimizerParamGroup;

std::vector<OptimizerParamGroup> distinct_groups(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<OptimizerParamGroup> distinct = groups;
  std::map<const void*, std::size_t> group_of;
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    distinct[i].params() = distinct_tensors(groups[i].params());
    for (const at::Tensor& parameter : distinct[i].params()) {
      const auto [known, is_new] = group_of.emplace(parameter.unsafeGetTensorImpl(), i);
      if (!is_new) {
        throw Error(ErrorCode::kInvalidArgument,
                    "an optimizer's parameter, " + describe(parameter) + ", is in groups " +
                        std::to_string(known->second) + " and " + std::to_string(i) +
                        "; put it into one, under whichever of its names");
      }
    }
  }
  return distinct;
}

/// Returns true if the elements of all tensors lie in memory in the same order, without gaps, as
/// type T.
template <class T, std::size_t N>
bool is_one_layout(const at::Tensor& gradient, const std::array<at::Tensor, N>& updated) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == c10::CppTypeToScalarType<T>::value &&
           tensor.strides() == updated[0].strides() && tensor.device().is_cpu();
  };
  bool do_all_fit = updated[0].is_non_overlapping_and_dense() && fits(gradient);
  for (const at::Tensor& tensor : updated) {
    do_all_fit = do_all_fit && fits(tensor);
  }
  return do_all_fit;
}

template <class T, std::size_t N, class Body>
void on_arrays_of(const at::Tensor& gradient,
                  const std::array<at::Tensor, N>& updated,
                  const Body& body) {
  const auto call = [&](const at::Tensor& slope, const std::array<at::Tensor, N>& tensors) {
    std::array<T*, N> arrays{};
    for (std::size_t i = 0; i < N; ++i) {
      arrays[i] = tensors[i].template data_ptr<T>();
    }
    body(slope.const_data_ptr<T>(), arrays, static_cast<std::size_t>(slope.numel()));
  };
  if (is_one_layout<T>(gradient, updated)) {
    call(gradient, updated);
    return;
  }
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  const auto flat = [&](const at::Tensor& tensor) {
    return tensor.to(kType, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  };
  std::array<at::Tensor, N> copies;
  std::ranges::transform(updated, copies.begin(), flat);
  call(flat(gradient), copies);
  for (std::size_t i = 0; i < N; ++i) {
    updated[i].copy_(copies[i]);
  }
}

/// Calls `body(gradient, arrays, count)` with the elements of a gradient and of the tensors that an
/// optimizer's step changes, all in the same order. The arrays are of type double for a double
/// parameter, otherwise float. Tensors of equal layout are passed in place, other tensors as copies
/// that are written back.
template <std::size_t N, class Body>
void on_arrays(const at::Tensor& gradient,
               const std::array<at::Tensor, N>& updated,
               const Body& body) {
  if (updated[0].scalar_type() == at::kDouble) {
    on_arrays_of<double>(gradient, updated, body);
  } else {
    on_arrays_of<float>(gradient, updated, body);
  }
}

void Moments::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg_sq);
}

void Moments::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg_sq);
}

void Moments::begin_step(const at::Tensor& parameter) {
  if (step() == 0) {
    exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
  step(step() + 1);
}

void check_adam_options(double lr, const Betas& betas, double eps, double weight_decay) {
  const auto [beta1, beta2] = betas;
  TORCH_CHECK(lr >= 0, "Invalid learning rate: ", lr);
  TORCH_CHECK(beta1 >= 0 && beta1 < 1, "Invalid beta parameter at index 0: ", beta1);
  TORCH_CHECK(beta2 >= 0 && beta2 < 1, "Invalid beta parameter at index 1: ", beta2);
  TORCH_CHECK(eps >= 0, "Invalid epsilon value: ", eps);
  TORCH_CHECK(weight_decay >= 0, "Invalid weight_decay value: ", weight_decay);
}

double bias_correction(double beta, std::int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

template class ParameterwiseOptimizer<AdadeltaOptions, AdadeltaParamState>;

void AdadeltaOptions::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(rho);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void AdadeltaOptions::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, rho);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void AdadeltaParamState::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(square_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(acc_delta);
}

void AdadeltaParamState::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, square_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, acc_delta);
}

Adadelta::Adadelta(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                   const AdadeltaOptions& defaults)
    : ParameterwiseOptimizer(groups, std::make_unique<AdadeltaOptions>(defaults)) {
  TORCH_CHECK(defaults.lr() >= 0, "Invalid learning rate: ", defaults.lr());
  TORCH_CHECK(defaults.rho() >= 0 && defaults.rho() <= 1, "Invalid rho value: ", defaults.rho());
  TORCH_CHECK(defaults.eps() >= 0, "Invalid epsilon value: ", defaults.eps());
  TORCH_CHECK(
      defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
}

Adadelta::Adadelta(std::vector<at::Tensor> parameters, const AdadeltaOptions& defaults)
    : Adadelta({::torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

void Adadelta::step_parameter(const at::Tensor& parameter,
                              const AdadeltaOptions& options,
                              AdadeltaParamState& state) {
  if (state.step() == 0) {
    state.square_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    state.acc_delta(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
  state.step(state.step() + 1);
  const AdadeltaConstants constants{.lr = options.lr(),
                                    .rho = options.rho(),
                                    .eps = options.eps(),
                                    .weight_decay = options.weight_decay()};
  on_arrays(parameter.grad(),
            std::array{parameter, state.square_avg(), state.acc_delta()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              adadelta_step(arrays[0], gradient, arrays[1], arrays[2], count, constants);
            });
}

template class ParameterwiseOptimizer<AdamWOptions, Moments>;

void AdamWOptions::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void AdamWOptions::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

AdamW::AdamW(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
             const AdamWOptions& defaults)
    : ParameterwiseOptimizer(groups, std::make_unique<AdamWOptions>(defaults)) {
  check_adam_options(defaults.lr(), defaults.betas(), defaults.eps(), defaults.weight_decay());
}

AdamW::AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& defaults)
    : AdamW({::torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

void AdamW::step_parameter(const at::Tensor& parameter,
                           const AdamWOptions& options,
                           Moments& state) {
  state.begin_step(parameter);
  const auto [beta1, beta2] = options.betas();
  const AdamWConstants constants{.lr = options.lr(),
                                 .beta1 = beta1,
                                 .beta2 = beta2,
                                 .eps = options.eps(),
                                 .weight_decay = options.weight_decay(),
                                 .bias_correction1 = bias_correction(beta1, state.step()),
                                 .bias_correction2 = bias_correction(beta2, state.step())};
  on_arrays(parameter.grad(),
            std::array{parameter, state.exp_avg(), state.exp_avg_sq()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              adamw_step(arrays[0], gradient, arrays[1], arrays[2], count, constants);
            });
}

template class ParameterwiseOptimizer<LambOptions, Moments>;

void LambOptions::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void LambOptions::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Betas, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

Lamb::Lamb(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
           const LambOptions& defaults)
    : ParameterwiseOptimizer(groups, std::make_unique<LambOptions>(defaults)) {
  check_adam_options(defaults.lr(), defaults.betas(), defaults.eps(), defaults.weight_decay());
}

Lamb::Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults)
    : Lamb({::torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

void Lamb::step_parameter(const at::Tensor& parameter, const LambOptions& options, Moments& state) {
  state.begin_step(parameter);
  const auto [beta1, beta2] = options.betas();
  const AdamWConstants constants{.lr = options.lr(),
                                 .beta1 = beta1,
                                 .beta2 = beta2,
                                 .eps = options.eps(),
                                 .weight_decay = options.weight_decay(),
                                 .bias_correction1 = bias_correction(beta1, state.step()),
                                 .bias_correction2 = bias_correction(beta2, state.step())};
  on_arrays(parameter.grad(),
            std::array{parameter, state.exp_avg(), state.exp_avg_sq()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              lamb_step(arrays[0], gradient, arrays[1], arrays[2], count, constants);
            });
}

template class ParameterwiseOptimizer<LarsOptions, LarsParamState>;

void LarsOptions::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(trust_coefficient);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
}

void LarsOptions::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, trust_coefficient);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
}

void LarsParamState::serialize(::torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
}

void LarsParamState::serialize(::torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
}

Lars::Lars(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
           const LarsOptions& defaults)
    : ParameterwiseOptimizer(groups, std::make_unique<LarsOptions>(defaults)) {
  TORCH_CHECK(defaults.lr() >= 0, "Invalid learning rate: ", defaults.lr());
  TORCH_CHECK(defaults.momentum() >= 0, "Invalid momentum value: ", defaults.momentum());
  TORCH_CHECK(
      defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
  TORCH_CHECK(defaults.trust_coefficient() >= 0,
              "Invalid trust_coefficient value: ",
              defaults.trust_coefficient());
  TORCH_CHECK(defaults.eps() >= 0, "Invalid epsilon value: ", defaults.eps());
}

Lars::Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults)
    : Lars({::torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

void Lars::step_parameter(const at::Tensor& parameter,
                          const LarsOptions& options,
                          LarsParamState& state) {
  if (!state.momentum_buffer().defined()) {
    state.momentum_buffer(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
  const LarsConstants constants{.lr = options.lr(),
                                .momentum = options.momentum(),
                                .weight_decay = options.weight_decay(),
                                .trust_coefficient = options.trust_coefficient(),
                                .eps = options.eps()};
  on_arrays(parameter.grad(),
            std::array{parameter, state.momentum_buffer()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              lars_step(arrays[0], gradient, arrays[1], count, constants);
            });
}

}  // namespace unisono::optim
