#include "unisono/torch/optim/moments.h"

#include <cmath>
#include <cstdint>
#include <tuple>

#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

namespace unisono::optim {

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

}  // namespace unisono::optim
