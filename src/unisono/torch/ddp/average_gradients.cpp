#include "unisono/torch/ddp/average_gradients.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/features/step_mistakes.h"
#include "unisono/torch/tensor/coalesced_all_reduce.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {
namespace {

void average_all(const char* what,
                 ProcessGroup& group,
                 const std::vector<at::Tensor>& tensors,
                 AllReduceOptions options) {
  options.op = kAvg;
  if (options.label.empty()) {
    options.label = std::string(what) + "s";
  }
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  const std::string caller = std::string("average_") + what + "s: a " + what + " is ";
  for (const at::Tensor& tensor : distinct_tensors(tensors)) {
    if (tensor.layout() != at::kStrided) {
      throw Error(ErrorCode::kInvalidArgument, caller + "sparse");
    }
    if (tensor.device() != tensors.front().device()) {
      throw Error(ErrorCode::kInvalidArgument,
                  caller + "on " + tensor.device().str() + ", and another on " +
                      tensors.front().device().str() +
                      "; a rank's model is on one device: move it by model.to(device)");
    }
    by_type[tensor.scalar_type()].push_back(tensor);
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [type, of_type] : by_type) {
    coalesced_all_reduce(group, of_type, options);
  }
}

void warn_of_averages(const ProcessGroup& group, const std::vector<at::Tensor>& gradients) {
  static std::atomic<bool> has_warned{false};
  if (std::ranges::any_of(gradients, ddp::is_in_a_bucket) && !has_warned.exchange(true)) {
    base::Logger("rank " + std::to_string(group.rank()))
        .warning(
            "average_gradients: DistributedDataParallel's backward() has averaged these gradients "
            "already, and does so in every step; leave this call out, or the wrapper");
  }
}

}  // namespace

void average_gradients(ProcessGroup& group,
                       const std::vector<at::Tensor>& parameters,
                       AllReduceOptions options) {
  ddp::note_average_by_hand();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : distinct_tensors(parameters)) {
    if (parameter.grad().defined()) {
      gradients.push_back(parameter.grad());
    }
  }
  warn_of_averages(group, gradients);
  average_all("gradient", group, gradients, std::move(options));
}

void average_parameters(ProcessGroup& group,
                        const std::vector<at::Tensor>& parameters,
                        AllReduceOptions options) {
  ddp::note_average_by_hand();
  average_all("parameter", group, parameters, std::move(options));
}

}  // namespace unisono
