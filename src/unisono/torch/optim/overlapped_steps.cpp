#include "unisono/torch/optim/overlapped_steps.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/average.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::optim {
namespace {

[[noreturn]] void fail(const ProcessGroup& group, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument,
              "[rank " + std::to_string(group.rank()) + "] ZeroRedundancyOptimizer: " + problem);
}

// `copy` is given each tensor and its place in `values`, which has room for all of them.
template <class Copy>
void for_each_place(const std::vector<at::Tensor>& tensors,
                    const at::Tensor& values,
                    const Copy& copy) {
  const c10::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    copy(tensor, values.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

std::int64_t count_elements(const std::vector<at::Tensor>& tensors) {
  std::int64_t n_elems = 0;
  for (const at::Tensor& tensor : tensors) {
    n_elems += tensor.numel();
  }
  return n_elems;
}

}  // namespace

OverlappedSteps::OverlappedSteps(std::shared_ptr<ProcessGroup> group,
                                 std::map<const void*, int> owners,
                                 Step step)
    : group_(std::move(group)), owners_(std::move(owners)), step_(std::move(step)) {}

BucketWork OverlappedSteps::reduce(const GradBucket& bucket) {
  if (bucket.index() == 0) {
    begin_pass();
  }
  finish_bucket();
  bucket_ = bucket;
  work_ = ddp::average(*group_, bucket.buffer(), bucket);
  BucketWork work{.work = work_};
  if (bucket.is_last()) {
    work.then = [this] {
      finish_bucket();
      finish_pass();
      return BucketWork();
    };
  }
  return work;
}

void OverlappedSteps::begin_pass() {
  if (step_ == nullptr) {
    fail(
        *group_,
        "the optimizer that overlaps with this model is gone, and a model has one; keep it as long "
        "as the model is trained");
  }
  if (std::exchange(is_in_pass_, true)) {
    fail(*group_,
         "the backward pass before was given up with a part of the step made, so that the ranks' "
         "parameters are not the same; go on from a checkpoint, with a new model and optimizer");
  }
  unreached_.clear();
}

// A pass that was given up comes here with any gradients; begin_pass() then refuses the next.
void OverlappedSteps::finish_bucket() {
  if (!bucket_) {
    return;
  }
  const GradBucket bucket = *std::exchange(bucket_, {});
  std::exchange(work_, {}).wait();
  std::vector<std::vector<at::Tensor>> of_ranks(static_cast<std::size_t>(group_->world_size()));
  for (const at::Tensor& parameter : bucket.parameters()) {
    if (const auto owner = owners_.find(parameter.unsafeGetTensorImpl()); owner != owners_.end()) {
      of_ranks[static_cast<std::size_t>(owner->second)].push_back(parameter);
    }
    if (!parameter.grad().defined()) {
      unreached_ = bucket.label();
    }
  }
  step_(of_ranks[static_cast<std::size_t>(group_->rank())]);
  for (int root = 0; root < group_->world_size(); ++root) {
    share(of_ranks[static_cast<std::size_t>(root)], root, bucket);
  }
}

void OverlappedSteps::share(const std::vector<at::Tensor>& parameters,
                            int root,
                            const GradBucket& bucket) {
  if (parameters.empty()) {
    return;
  }
  Sent sent{.root = root,
            .parameters = parameters,
            .values = at::empty({count_elements(parameters)}, parameters.front().scalar_type()),
            .work = {}};
  if (root == group_->rank()) {
    for_each_place(parameters, sent.values, [](const at::Tensor& tensor, const at::Tensor& place) {
      place.copy_(tensor);
    });
  }
  sent.work = group_->broadcast_async(
      as_buffer(sent.values),
      {.root = root,
       .timeout = bucket.timeout(),
       .label = "values of rank " + std::to_string(root) + " in " + bucket.label()});
  sent_.push_back(std::move(sent));
}

void OverlappedSteps::finish_pass() {
  for (const Sent& sent : std::exchange(sent_, {})) {
    sent.work.wait();
    if (sent.root != group_->rank()) {
      for_each_place(
          sent.parameters, sent.values, [](const at::Tensor& tensor, const at::Tensor& place) {
            tensor.copy_(place);
          });
    }
  }
  is_in_pass_ = false;
  ++n_passes_;
}

void OverlappedSteps::end_step() {
  const int n_passes = std::exchange(n_passes_, 0);
  if (n_passes != 1) {
    fail(*group_,
         "with overlap_with() the synchronized backward pass makes the step, and there were " +
             std::to_string(n_passes) +
             " since the last step(); make one, and others before it under no_sync()");
  }
  if (!unreached_.empty()) {
    fail(*group_,
         "backward computed no gradient for a parameter of " + unreached_ +
             ", which was left as it was; with overlap_with() each pass reaches all parameters");
  }
}

}  // namespace unisono::optim
