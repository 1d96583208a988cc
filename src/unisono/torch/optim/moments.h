#pragma once

#include <cstdint>
#include <tuple>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

namespace unisono::optim {

/// The decay rates of a gradient's mean and of its square's.
using Betas = std::tuple<double, double>;

/// The means of a parameter's gradients and of their squares, as AdamW and Lamb keep them.
struct Moments : public ::torch::optim::OptimizerCloneableParamState<Moments> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  /// Counts a step of `parameter`; the first starts with zeros.
  void begin_step(const at::Tensor& parameter);
};

/// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
void check_adam_options(double lr, const Betas& betas, double eps, double weight_decay);

/// 1 - beta ^ step: what a mean that started from 0 is to be divided by.
[[nodiscard]] double bias_correction(double beta, std::int64_t step);

}  // namespace unisono::optim
