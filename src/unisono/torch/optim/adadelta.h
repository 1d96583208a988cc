#pragma once

#include <cstdint>
#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include "unisono/torch/optim/parameterwise_optimizer.h"

namespace unisono::optim {

/// PyTorch's names and defaults.
struct AdadeltaOptions : public ::torch::optim::OptimizerCloneableOptions<AdadeltaOptions> {
  explicit AdadeltaOptions(double lr = 1.0) : lr_(lr) {}

  TORCH_ARG(double, lr) = 1.0;
  TORCH_ARG(double, rho) = 0.9;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;

  [[nodiscard]] double get_lr() const override { return lr(); }

  void set_lr(double lr) override { this->lr(lr); }
};

struct AdadeltaParamState
    : public ::torch::optim::OptimizerCloneableParamState<AdadeltaParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, square_avg);
  TORCH_ARG(at::Tensor, acc_delta);

 public:
  void serialize(::torch::serialize::InputArchive& archive) override;
  void serialize(::torch::serialize::OutputArchive& archive) const override;
};

extern template class ParameterwiseOptimizer<AdadeltaOptions, AdadeltaParamState>;

/// Adadelta, which LibTorch lacks. Equal to Python's torch.optim.Adadelta to rounding; for float
/// and double it passes over memory once per step.
///
/// Source: Zeiler, "ADADELTA: an adaptive learning rate method", arXiv:1212.5701.
class Adadelta : public ParameterwiseOptimizer<AdadeltaOptions, AdadeltaParamState> {
 public:
  /// Throws c10::Error, as LibTorch's optimizers do, for options out of range.
  explicit Adadelta(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                    const AdadeltaOptions& defaults = AdadeltaOptions());
  explicit Adadelta(std::vector<at::Tensor> parameters,
                    const AdadeltaOptions& defaults = AdadeltaOptions());

 protected:
  void step_parameter(const at::Tensor& parameter,
                      const AdadeltaOptions& options,
                      AdadeltaParamState& state) override;
};

}  // namespace unisono::optim
