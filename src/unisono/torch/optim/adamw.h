#pragma once

#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include "unisono/torch/optim/moments.h"
#include "unisono/torch/optim/parameterwise_optimizer.h"

namespace unisono::optim {

/// PyTorch's names and defaults.
struct AdamWOptions : public ::torch::optim::OptimizerCloneableOptions<AdamWOptions> {
  explicit AdamWOptions(double lr = 1e-3) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

extern template class ParameterwiseOptimizer<AdamWOptions, Moments>;

/// AdamW in one pass over memory per step, where torch::optim::AdamW makes several. Equal to
/// Python's torch.optim.AdamW to rounding; without amsgrad.
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv:1711.05101.
class AdamW : public ParameterwiseOptimizer<AdamWOptions, Moments> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit AdamW(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                 const AdamWOptions& defaults = AdamWOptions());
  explicit AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& defaults = AdamWOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const AdamWOptions& options,
                      Moments& state) override;
};

}  // namespace unisono::optim
