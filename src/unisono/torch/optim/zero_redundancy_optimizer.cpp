#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include <numeric>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::optim {
namespace {

[[noreturn]] void fail(const ProcessGroup& group, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument,
              "[rank " + std::to_string(group.rank()) + "] ZeroRedundancyOptimizer: " + problem);
}

// Calls `copy` with each tensor and its place in `values`, which has room for all tensors.
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
         "the previous backward pass was aborted with a part of the step made, so that the ranks' "
         "parameters are not the same; go on from a checkpoint, with a new model and optimizer");
  }
  unreached_.clear();
}

// An aborted pass arrives here with arbitrary gradients; begin_pass() then refuses the next pass.
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
            .values = at::empty({count_elements(parameters)},
                                parameters.front().options().requires_grad(false)),
            .work = {}};
  if (root == group_->rank()) {
    for_each_place(parameters, sent.values, [](const at::Tensor& tensor, const at::Tensor& place) {
      place.copy_(tensor);
    });
  }
  sent.work = broadcast_async(
      *group_,
      sent.values,
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

namespace {

using ::torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> all_parameters(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<at::Tensor> parameters;
  for (const OptimizerParamGroup& group : groups) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace

std::vector<int> divide_parameters(std::span<const std::int64_t> n_bytes, int world_size) {
  std::vector<std::size_t> by_size(n_bytes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size,
                           [&](std::size_t a, std::size_t b) { return n_bytes[a] > n_bytes[b]; });
  std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(world_size), 0);
  std::vector<int> owners(n_bytes.size());
  for (const std::size_t parameter : by_size) {
    const auto least = std::ranges::min_element(of_ranks);
    *least += n_bytes[parameter];
    owners[parameter] = static_cast<int>(least - of_ranks.begin());
  }
  return owners;
}

ParameterShares::ParameterShares(std::shared_ptr<ProcessGroup> group,
                                 const std::vector<OptimizerParamGroup>& groups)
    : group_(std::move(group)) {
  const std::vector<at::Tensor> parameters = all_parameters(groups);
  if (group_ == nullptr || parameters.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("ZeroRedundancyOptimizer: ") +
                    (group_ == nullptr ? "the process group is null" : "there are no parameters"));
  }
  std::vector<std::int64_t> n_bytes;
  for (const at::Tensor& parameter : parameters) {
    n_bytes.push_back(static_cast<std::int64_t>(parameter.nbytes()));
  }
  const std::vector<int> owners = divide_parameters(n_bytes, group_->world_size());
  for (int rank = 0; rank < group_->world_size(); ++rank) {
    std::vector<NamedTensor> of_rank;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (owners[i] == rank) {
        owners_.emplace(parameters[i].unsafeGetTensorImpl(), rank);
        of_rank.push_back({.name = "parameter " + std::to_string(i), .tensor = parameters[i]});
      }
      if (owners[i] == rank && rank == group_->rank()) {
        own_.push_back(parameters[i]);
      }
    }
    of_ranks_.emplace_back(std::move(of_rank), "parameters of rank " + std::to_string(rank));
  }
}

void ParameterShares::note_step(bool is_first) const {
  if (!own_.empty()) {
    optim::note_step(own_.front(), is_first);
  }
}

bool ParameterShares::is_own(const at::Tensor& parameter) const {
  return std::ranges::any_of(own_, [&](const at::Tensor& own) { return own.is_same(parameter); });
}

std::vector<OptimizerParamGroup> ParameterShares::own_groups(
    const std::vector<OptimizerParamGroup>& groups) const {
  std::vector<OptimizerParamGroup> own;
  for (const OptimizerParamGroup& group : groups) {
    std::vector<at::Tensor> parameters;
    std::ranges::copy_if(group.params(),
                         std::back_inserter(parameters),
                         [&](const at::Tensor& parameter) { return is_own(parameter); });
    own.emplace_back(std::move(parameters), group.options().clone());
  }
  return own;
}

void ParameterShares::share_values() {
  for (std::size_t rank = 0; rank < of_ranks_.size(); ++rank) {
    of_ranks_[rank].run(*group_, std::nullopt, static_cast<int>(rank));
  }
}

void ParameterShares::share_rates(std::vector<OptimizerParamGroup>& groups, int root) const {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : groups) {
    rates.push_back(group.options().get_lr());
  }
  group_->broadcast(as_buffer(std::span(rates)), {.root = root, .label = "learning rates"});
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(rates[i]);
  }
}

TensorState ParameterShares::own_part(const TensorState& state,
                                      const ::torch::nn::Module& module) const {
  TensorState part;
  add_state(part, "options.", state_below(state, "options."));
  for (const auto& item : module.named_parameters()) {
    const std::string prefix = "state." + item.key() + ".";
    if (is_own(item.value())) {
      add_state(part, prefix, state_below(state, prefix));
    }
  }
  return part;
}

}  // namespace unisono::optim
