#include "unisono/torch/parallel/tensor/gradients.h"

#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include "unisono/comm/options.h"
#include "unisono/torch/parallel/tensor/gradient_norm.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/tensor/coalesced_all_reduce.h"

namespace unisono::parallel {
namespace {

using Group = std::shared_ptr<ProcessGroup>;

}  // namespace

void sum_partial_gradients(const ::torch::nn::Module& module) {
  // Grouped in the order of the parameters, which is the same on all ranks.
  std::vector<std::pair<Group, std::map<at::ScalarType, std::vector<at::Tensor>>>> by_group;
  for (const PlacedTensor& parameter :
       with_gradients(placed_parameters(module), "sum_partial_gradients")) {
    if (!parameter.placement.has_partial_gradient) {
      continue;
    }
    auto found = by_group.begin();
    while (found != by_group.end() && found->first != parameter.group) {
      ++found;
    }
    if (found == by_group.end()) {
      found = by_group.insert(found, {parameter.group, {}});
    }
    const at::Tensor& gradient = parameter.tensor.grad();
    found->second[gradient.scalar_type()].push_back(gradient);
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [group, by_type] : by_group) {
    for (const auto& [type, gradients] : by_type) {
      coalesced_all_reduce(*group, gradients, {.label = "partial gradients"});
    }
  }
}

double clip_grad_norm(const ::torch::nn::Module& module,
                      double max_norm,
                      const ClipOptions& options) {
  check_clipping(max_norm, options);
  const auto parameters = with_gradients(placed_parameters(module), "clip_grad_norm");
  std::vector<at::Tensor> gradients;
  for (const PlacedTensor& parameter : parameters) {
    gradients.push_back(parameter.tensor.grad());
  }
  const double norm = norm_of_gradients(parameters, options);
  clip_to_norm(gradients, norm, max_norm, options);
  return norm;
}

}  // namespace unisono::parallel
