#include "unisono/torch/average_gradients.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor.h"

namespace unisono {
namespace {

void average(ProcessGroup& group,
             const std::vector<at::Tensor>& gradients,
             const AllReduceOptions& options) {
  std::int64_t count = 0;
  for (const at::Tensor& gradient : gradients) {
    count += gradient.numel();
  }
  const at::Tensor flat = allocate_tensor(group, {count}, gradients.front().scalar_type());
  std::vector<at::Tensor> parts;
  std::int64_t offset = 0;
  for (const at::Tensor& gradient : gradients) {
    parts.push_back(flat.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
    parts.back().copy_(gradient);
    offset += gradient.numel();
  }
  all_reduce(group, flat, options);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    gradients[i].copy_(parts[i]);
  }
}

}  // namespace

void average_gradients(ProcessGroup& group,
                       const std::vector<at::Tensor>& parameters,
                       AllReduceOptions options) {
  options.op = kAvg;
  if (options.label.empty()) {
    options.label = "gradients";
  }
  const c10::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined()) {
      if (gradient.layout() != at::kStrided || !gradient.device().is_cpu()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "average_gradients: a gradient is sparse or not in CPU memory");
      }
      by_type[gradient.scalar_type()].push_back(gradient);
    }
  }
  for (const auto& [type, gradients] : by_type) {
    average(group, gradients, options);
  }
}

}  // namespace unisono
