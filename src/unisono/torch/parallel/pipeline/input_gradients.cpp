#include "unisono/torch/parallel/pipeline/input_gradients.h"

#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace unisono::parallel {

at::Tensor InputGradients::attach(const c10::intrusive_ptr<InputGradients>& node,
                                  const at::Tensor& value) {
  at::Tensor input = value.detach();
  torch::autograd::create_gradient_edge(input, node);
  node->gradients_.emplace_back();
  return input;
}

torch::autograd::variable_list InputGradients::apply(torch::autograd::variable_list&& gradients) {
  gradients_ = std::move(gradients);
  return {};
}

}  // namespace unisono::parallel
