#pragma once

#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include "unisono/torch/optim/moments.h"
#include "unisono/torch/optim/parameterwise_optimizer.h"

namespace unisono::optim {

/// AdamWOptions' names; the paper's defaults.
struct LambOptions : public ::torch::optim::OptimizerCloneableOptions<LambOptions> {
  explicit LambOptions(double lr = 1e-3) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(Betas, betas) = Betas(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

extern template class ParameterwiseOptimizer<LambOptions, Moments>;

/// LAMB, for large batches: AdamW's direction for each parameter tensor, scaled so that a step is
/// the learning rate times the tensor's own norm. Biases and norms, which are small, often get a
/// group without weight decay.
///
/// Source: You and others, "Large batch optimization for deep learning: training BERT in 76
/// minutes", arXiv:1904.00962.
class Lamb : public ParameterwiseOptimizer<LambOptions, Moments> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Lamb(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                const LambOptions& defaults = LambOptions());
  explicit Lamb(std::vector<at::Tensor> parameters, const LambOptions& defaults = LambOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const LambOptions& options,
                      Moments& state) override;
};

}  // namespace unisono::optim
