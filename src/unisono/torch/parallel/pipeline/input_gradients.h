#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace unisono::parallel {

/// Where the graph of a stage's pass ends: takes the gradients of its inputs.
///
/// Inputs are tensors with a history, as inside a whole model: what works in place may be a
/// stage's first layer.
class InputGradients : public torch::autograd::Node {
 public:
  [[nodiscard]] std::string name() const override { return "PipelineInputBackward"; }

  /// The value as an input of the stage that `node` belongs to, without a copy.
  static at::Tensor attach(const c10::intrusive_ptr<InputGradients>& node, const at::Tensor& value);

  /// Of the tensors of attach(), in their order; undefined for those that were not used.
  [[nodiscard]] const std::vector<at::Tensor>& gradients() const { return gradients_; }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  std::vector<at::Tensor> gradients_;
};

}  // namespace unisono::parallel
