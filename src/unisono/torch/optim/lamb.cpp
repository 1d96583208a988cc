#include "unisono/torch/optim/lamb.h"

#include <array>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "unisono/torch/optim/lamb_step.h"
#include "unisono/torch/optim/moments.h"
#include "unisono/torch/optim/on_arrays.h"
#include "unisono/torch/optim/parameterwise_optimizer_impl.h"

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

}  // namespace unisono::optim
