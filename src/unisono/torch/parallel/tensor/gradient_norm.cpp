#include "unisono/torch/parallel/tensor/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Accumulates a norm over one or several tensors: the sum of powers, or the maximum.
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
    if (gradient.layout() != at::kStrided || !gradient.device().is_cpu()) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(caller) + ": the gradient of '" + parameter.name +
                      "' is sparse or not in CPU memory");
    }
  }
  return parameters;
}

double norm_of_gradients(const std::vector<PlacedTensor>& parameters, const ClipOptions& options) {
  const c10::NoGradGuard no_grad;
  NormSum total(options.norm_type);
  // In the order of the parameters, which is the same on all ranks of a group.
  std::vector<std::pair<std::shared_ptr<ProcessGroup>, NormSum>> of_groups;
  for (const PlacedTensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!parameter.placement.split) {
      total.add(gradient);
      continue;
    }
    auto found = std::ranges::find_if(
        of_groups, [&](const auto& known) { return known.first == parameter.group; });
    if (found == of_groups.end()) {
      found = of_groups.insert(found, {parameter.group, NormSum(options.norm_type)});
    }
    found->second.add(gradient);
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
  // Also scales if the factor is NaN.
  if (!(factor >= 1)) {
    for (const at::Tensor& gradient : gradients) {
      gradient.mul_(factor);
    }
  }
}

}  // namespace unisono::parallel
