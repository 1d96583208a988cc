#include "unisono/torch/ddp/average_gradients.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/tensor.h"

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

void average_all(const char* what,
                 ProcessGroup& group,
                 const std::vector<at::Tensor>& tensors,
                 AllReduceOptions options) {
  options.op = kAvg;
  if (options.label.empty()) {
    options.label = std::string(what) + "s";
  }
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          std::string("average_") + what + "s: a " + what + " is sparse or not in CPU memory");
    }
    by_type[tensor.scalar_type()].push_back(tensor);
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [type, of_type] : by_type) {
    average(group, of_type, options);
  }
}

}  // namespace

void average_gradients(ProcessGroup& group,
                       const std::vector<at::Tensor>& parameters,
                       AllReduceOptions options) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) {
      gradients.push_back(parameter.grad());
    }
  }
  average_all("gradient", group, gradients, std::move(options));
}

void average_parameters(ProcessGroup& group,
                        const std::vector<at::Tensor>& parameters,
                        AllReduceOptions options) {
  average_all("parameter", group, parameters, std::move(options));
}

}  // namespace unisono
