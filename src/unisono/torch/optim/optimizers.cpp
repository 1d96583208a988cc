#include "unisono/torch/optim/optimizers.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/serialize/archive.h>

#include "unisono/base/error.h"
#include "unisono/torch/optim/device_steps.h"
#include "unisono/torch/optim/optimizer_steps.h"
#include "unisono/torch/optim/parameterwise_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::optim {

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

namespace {

void begin_step(const at::Tensor& parameter, AdadeltaParamState& state) {
  if (state.step() == 0) {
    state.square_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    state.acc_delta(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
  state.step(state.step() + 1);
}

AdadeltaConstants constants_of(const AdadeltaOptions& options) {
  return {.lr = options.lr(),
          .rho = options.rho(),
          .eps = options.eps(),
          .weight_decay = options.weight_decay()};
}

}  // namespace

void Adadelta::step_on_device(const std::vector<at::Tensor>& parameters,
                              const AdadeltaOptions& options,
                              const std::vector<AdadeltaParamState*>& states) {
  std::array<Tensors, 3> updated{parameters};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    begin_step(parameters[i], *states[i]);
    updated[1].push_back(states[i]->square_avg());
    updated[2].push_back(states[i]->acc_delta());
  }
  on_lists(parameters, updated, [&](const Tensors& gradients, const auto& lists) {
    adadelta_step(lists[0], gradients, lists[1], lists[2], constants_of(options));
  });
}

void Adadelta::step_parameter(const at::Tensor& parameter,
                              const AdadeltaOptions& options,
                              AdadeltaParamState& state) {
  begin_step(parameter, state);
  const AdadeltaConstants constants = constants_of(options);
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

void AdamW::step_on_device(const std::vector<at::Tensor>& parameters,
                           const AdamWOptions& options,
                           const std::vector<Moments*>& states) {
  step_with_moments(parameters, options, states, adamw_step);
}

void AdamW::step_parameter(const at::Tensor& parameter,
                           const AdamWOptions& options,
                           Moments& state) {
  state.begin_step(parameter);
  const AdamWConstants constants = constants_of(options, state);
  on_arrays(parameter.grad(),
            std::array{parameter, state.exp_avg(), state.exp_avg_sq()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              adamw_step(arrays[0], gradient, arrays[1], arrays[2], count, constants);
            });
}

}  // namespace unisono::optim
