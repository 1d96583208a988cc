#include "unisono/torch/parallel/tensor/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/tensor/coalesced_all_reduce.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Accumulates a norm over one or several tensors: the sum of powers, or the maximum.
class NormSum {
 public:
  explicit NormSum(double type) : type_(type) {}

  // `norm`: the norm of a tensor.
  void add_norm(double norm) { add_value(is_max() ? norm : std::pow(norm, type_)); }

  void add_over(ProcessGroup& group) {
    const at::Tensor value = at::full({1}, value_, at::TensorOptions(at::kDouble));
    all_reduce(group, value, {.op = is_max() ? kMax : kSum, .label = "norm of gradients"});
    value_ = value.item<double>();
  }

  void add_value(double value) {
    if (!is_max()) {
      value_ += value;
    } else if (!std::isnan(value_) && !(value <= value_)) {  // std::max() would lose a NaN
      value_ = value;
    }
  }

  [[nodiscard]] double value() const { return value_; }

  [[nodiscard]] double norm() const { return is_max() ? value_ : std::pow(value_, 1 / type_); }

 private:
  [[nodiscard]] bool is_max() const { return std::isinf(type_); }

  double type_;
  double value_ = 0;
};

// Returns the norm of each gradient, 0 for one without elements. The host waits once for all
// gradients on devices.
std::vector<double> norms_of(const std::vector<PlacedTensor>& parameters, double type) {
  std::vector<double> norms(parameters.size(), 0);
  std::vector<std::size_t> places;
  std::vector<at::Tensor> on_device;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].tensor.grad();
    if (gradient.numel() == 0) {
      continue;
    }
    const at::Tensor norm = at::linalg_vector_norm(gradient, type, {}, false, at::kDouble);
    if (norm.is_cpu()) {
      norms[i] = norm.item<double>();
    } else {
      places.push_back(i);
      on_device.push_back(on_device.empty() ? norm : norm.to(on_device.front().device()));
    }
  }
  if (!on_device.empty()) {
    const at::Tensor all = at::stack(on_device).cpu();
    for (std::size_t i = 0; i < places.size(); ++i) {
      norms[places[i]] = all[static_cast<std::int64_t>(i)].item<double>();
    }
  }
  return norms;
}

}  // namespace

void check_clipping(double max_norm, const ClipOptions& options) {
  if (!(max_norm >= 0) || !(options.norm_type > 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "clip_grad_norm: the largest norm is " + std::to_string(max_norm) + ", its type " +
                    std::to_string(options.norm_type) +
                    "; neither may be negative, nor the type 0");
  }
}

std::vector<PlacedTensor> with_gradients(std::vector<PlacedTensor> parameters, const char* caller) {
  std::erase_if(parameters,
                [](const PlacedTensor& parameter) { return !parameter.tensor.grad().defined(); });
  for (const PlacedTensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.layout() != at::kStrided) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(caller) + ": the gradient of '" + parameter.name + "' is sparse");
    }
  }
  return parameters;
}

double norm_of_gradients(const std::vector<PlacedTensor>& parameters, const ClipOptions& options) {
  const c10::NoGradGuard no_grad;
  NormSum total(options.norm_type);
  // In the order of the parameters, which is the same on all ranks of a group.
  std::vector<std::pair<std::shared_ptr<ProcessGroup>, NormSum>> of_groups;
  const std::vector<double> norms = norms_of(parameters, options.norm_type);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const PlacedTensor& parameter = parameters[i];
    if (!parameter.placement.split) {
      total.add_norm(norms[i]);
      continue;
    }
    auto found = std::ranges::find_if(
        of_groups, [&](const auto& known) { return known.first == parameter.group; });
    if (found == of_groups.end()) {
      found = of_groups.insert(found, {parameter.group, NormSum(options.norm_type)});
    }
    found->second.add_norm(norms[i]);
  }
  for (auto& [group, sum] : of_groups) {
    sum.add_over(*group);
    total.add_value(sum.value());
  }
  if (options.others != nullptr) {
    total.add_over(*options.others);
  }
  return total.norm();
}

void clip_to_norm(const std::vector<at::Tensor>& gradients,
                  double norm,
                  double max_norm,
                  const ClipOptions& options) {
  if (options.error_if_nonfinite && !std::isfinite(norm)) {
    throw Error(ErrorCode::kInvalidArgument,
                "clip_grad_norm: the norm of the gradients is " + std::to_string(norm) +
                    "; leave this step out, or set error_if_nonfinite to false to go on with it");
  }
  const c10::NoGradGuard no_grad;
  constexpr double kAgainstZero = 1e-6;  // the same constant as in torch
  const double factor = max_norm / (norm + kAgainstZero);
  // A factor that is NaN scales as well.
  if (factor >= 1) {
    return;
  }
  std::vector<at::Tensor> on_devices;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.is_cpu()) {
      gradient.mul_(factor);
    } else {
      on_devices.push_back(gradient);
    }
  }
  for (const auto& [kind, alike] : by_device_and_type(on_devices)) {
    at::_foreach_mul_(alike, factor);
  }
}

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
