#include <array>
#include <cstddef>

#include <ATen/core/Tensor.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/device_steps.h"
#include "unisono/torch/optim/optimizer_steps.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/parameterwise_optimizer.h"

// Lamb and Lars, whose steps depend on the norms of a layer.

namespace unisono::optim {

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

void Lamb::step_on_device(const std::vector<at::Tensor>& parameters,
                          const LambOptions& options,
                          const std::vector<Moments*>& states) {
  step_with_moments(parameters, options, states, lamb_step);
}

void Lamb::step_parameter(const at::Tensor& parameter, const LambOptions& options, Moments& state) {
  state.begin_step(parameter);
  const AdamWConstants constants = constants_of(options, state);
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

namespace {

void begin_step(const at::Tensor& parameter, LarsParamState& state) {
  if (!state.momentum_buffer().defined()) {
    state.momentum_buffer(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
}

LarsConstants constants_of(const LarsOptions& options) {
  return {.lr = options.lr(),
          .momentum = options.momentum(),
          .weight_decay = options.weight_decay(),
          .trust_coefficient = options.trust_coefficient(),
          .eps = options.eps()};
}

}  // namespace

void Lars::step_on_device(const std::vector<at::Tensor>& parameters,
                          const LarsOptions& options,
                          const std::vector<LarsParamState*>& states) {
  std::array<Tensors, 2> updated{parameters};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    begin_step(parameters[i], *states[i]);
    updated[1].push_back(states[i]->momentum_buffer());
  }
  on_lists(parameters, updated, [&](const Tensors& gradients, const auto& lists) {
    lars_step(lists[0], gradients, lists[1], constants_of(options));
  });
}

void Lars::step_parameter(const at::Tensor& parameter,
                          const LarsOptions& options,
                          LarsParamState& state) {
  begin_step(parameter, state);
  const LarsConstants constants = constants_of(options);
  on_arrays(parameter.grad(),
            std::array{parameter, state.momentum_buffer()},
            [&](const auto* gradient, const auto& arrays, std::size_t count) {
              lars_step(arrays[0], gradient, arrays[1], count, constants);
            });
}

}  // namespace unisono::optim
