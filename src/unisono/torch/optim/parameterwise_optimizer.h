#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

namespace unisono::optim {

/// The groups with each parameter once: LibTorch's modules list a tensor once for each of its
/// names, and an optimizer would step the tensor as often. Throws Error(kInvalidArgument) for a
/// parameter of two groups.
[[nodiscard]] std::vector<::torch::optim::OptimizerParamGroup> distinct_groups(
    const std::vector<::torch::optim::OptimizerParamGroup>& groups);

/// What optimizers have in common whose step treats each parameter by itself. `Options` are a
/// group's, `State` is a parameter's.
///
/// step() throws c10::Error for a gradient that is sparse or not in CPU memory.
template <class Options, class State>
class ParameterwiseOptimizer : public ::torch::optim::Optimizer {
 public:
  /// Throws as distinct_groups().
  ParameterwiseOptimizer(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                         std::unique_ptr<::torch::optim::OptimizerOptions> defaults)
      : Optimizer(distinct_groups(groups), std::move(defaults)) {}

  at::Tensor step(LossClosure closure = nullptr) override;
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 protected:
  /// A step of a parameter that has a gradient. The first one gets a fresh state.
  virtual void step_parameter(const at::Tensor& parameter,
                              const Options& options,
                              State& state) = 0;

 private:
  State& state_of(const at::Tensor& parameter);
};

}  // namespace unisono::optim
