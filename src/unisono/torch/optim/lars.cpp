#include "unisono/torch/optim/lars.h"

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/lars_step.h"
#include "unisono/torch/optim/on_arrays.h"
#include "unisono/torch/optim/parameterwise_optimizer_impl.h"

namespace unisono::optim {

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
