#include "unisono/torch/optim/adadelta.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/adadelta_step.h"
#include "unisono/torch/optim/on_arrays.h"
#include "unisono/torch/optim/parameterwise_optimizer_impl.h"

namespace unisono::optim {

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

}  // namespace unisono::optim
