#include "unisono/torch/parallel/tensor/gradients.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/tensor/coalesced_all_reduce.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

using Group = std::shared_ptr<ProcessGroup>;

// Parameters that have a gradient.
std::vector<PlacedTensor> with_gradients(const ::torch::nn::Module& module, const char* caller) {
  std::vector<PlacedTensor> parameters;
  for (PlacedTensor& parameter : placed_parameters(module)) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) {
      continue;
    }
    if (gradient.layout() != at::kStrided || !gradient.device().is_cpu()) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(caller) + ": the gradient of '" + parameter.name +
                      "' is sparse or not in CPU memory");
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// What adds up of a norm, of one tensor or of several: the sum of powers, or the maximum.
class NormSum {
 public:
  explicit NormSum(double type) : type_(type) {}

  void add(const at::Tensor& tensor) {
    if (tensor.numel() > 0) {
      const double norm =
          at::linalg_vector_norm(tensor, type_, {}, false, at::kDouble).item<double>();
      add_value(is_max() ? norm : std::pow(norm, type_));
    }
  }

  void add_over(ProcessGroup& group) {
    const at::Tensor value = at::full({1}, value_, at::TensorOptions(at::kDouble));
    all_reduce(group, value, {.op = is_max() ? kMax : kSum, .label = "norm of gradients"});
    value_ = value.item<double>();
  }

  void add_value(double value) {
    // Not std::max(), which would lose a NaN.
    value_ = is_max() ? (value_ >= value ? value_ : value) : value_ + value;
  }

  [[nodiscard]] double value() const { return value_; }

  [[nodiscard]] double norm() const { return is_max() ? value_ : std::pow(value_, 1 / type_); }

 private:
  [[nodiscard]] bool is_max() const { return std::isinf(type_); }

  double type_;
  double value_ = 0;
};

}  // namespace

void sum_partial_gradients(const ::torch::nn::Module& module) {
  // By group, in the order of the parameters, which is the same on all ranks.
  std::vector<std::pair<Group, std::map<at::ScalarType, std::vector<at::Tensor>>>> by_group;
  for (const PlacedTensor& parameter : with_gradients(module, "sum_partial_gradients")) {
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
  if (!(max_norm >= 0) || !(options.norm_type > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "clip_grad_norm: the largest norm is " + std::to_string(max_norm) + ", its type " +
                    std::to_string(options.norm_type) +
                    "; neither may be negative, nor the type 0");
  }
  const c10::NoGradGuard no_grad;
  const std::vector<PlacedTensor> parameters = with_gradients(module, "clip_grad_norm");
  NormSum total(options.norm_type);
  std::vector<std::pair<Group, NormSum>> of_groups;
  for (const PlacedTensor& parameter : parameters) {
    if (!parameter.placement.split) {
      total.add(parameter.tensor.grad());
      continue;
    }
    auto found = of_groups.begin();
    while (found != of_groups.end() && found->first != parameter.group) {
      ++found;
    }
    if (found == of_groups.end()) {
      found = of_groups.insert(found, {parameter.group, NormSum(options.norm_type)});
    }
    found->second.add(parameter.tensor.grad());
  }
  for (auto& [group, sum] : of_groups) {
    sum.add_over(*group);
    total.add_value(sum.value());
  }
  if (options.others != nullptr) {
    total.add_over(*options.others);
  }
  const double norm = total.norm();
  constexpr double kAgainstZero = 1e-6;  // as torch's
  const double factor = max_norm / (norm + kAgainstZero);
  if (!(factor >= 1)) {
    for (const PlacedTensor& parameter : parameters) {
      at::Tensor(parameter.tensor.grad()).mul_(factor);
    }
  }
  return norm;
}

}  // namespace unisono::parallel
