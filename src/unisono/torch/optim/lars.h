#pragma once

#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include "unisono/torch/optim/parameterwise_optimizer.h"

namespace unisono::optim {

/// torch::optim::SGDOptions' names; momentum and the trust coefficient as the paper has them.
struct LarsOptions : public ::torch::optim::OptimizerCloneableOptions<LarsOptions> {
  explicit LarsOptions(double lr) : lr_(lr) {}

  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 1e-3;  ///< 0: plain SGD, as for biases and norms.
  TORCH_ARG(double, eps) = 1e-8;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

struct LarsParamState : public ::torch::optim::OptimizerCloneableParamState<LarsParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;
};

extern template class ParameterwiseOptimizer<LarsOptions, LarsParamState>;

/// LARS, for large batches: SGD with momentum whose gradient is scaled, for each parameter tensor,
/// by `trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`.
///
/// Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks",
/// arXiv:1708.03888.
class Lars : public ParameterwiseOptimizer<LarsOptions, LarsParamState> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Lars(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                const LarsOptions& defaults);
  explicit Lars(std::vector<at::Tensor> parameters, const LarsOptions& defaults);

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const LarsOptions& options,
                      LarsParamState& state) override;
};

}  // namespace unisono::optim
