#include "unisono/torch/ddp/logical_ranks/shard_gradients.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/gradient_views.h"
#include "unisono/torch/ddp/logical_ranks/reduce_shards.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/wide_types.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

ShardGradients::ShardGradients(const ProcessGroup& group,
                               const std::vector<NamedTensor>& parameters,
                               int n_shards)
    : rank_(group.rank()),
      n_shards_(n_shards),
      own_(shards_of(group.rank(), group.world_size(), n_shards)),
      parameters_(parameters),
      sums_(n_shards) {
  check_types(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    indices_.emplace(parameters[i].tensor.unsafeGetTensorImpl(), i);
  }
}

void ShardGradients::check_types(const std::vector<NamedTensor>& parameters) {
  check_wide_types(
      parameters, "logical_ranks", "whose sums have the same bits wherever a shard runs");
}

void ShardGradients::fail(const std::string& problem) const {
  throw Error(ErrorCode::kInvalidArgument,
              "[rank " + std::to_string(rank_) + "] DistributedDataParallel: " + problem);
}

void ShardGradients::begin_shard(int shard) {
  for (const NamedTensor& parameter : parameters_) {
    parameter.tensor.mutable_grad().reset();
  }
  shard_ = shard;
  n_passes_ = 0;
}

void ShardGradients::count_pass() {
  if (shard_ == kNone) {
    fail("with logical_ranks backward() is called in for_each_shard() only");
  }
  if (++n_passes_ > 1) {
    fail("shard " + std::to_string(shard_) +
         " calls backward() a second time; add its losses, and call it once");
  }
}

void ShardGradients::end_shard() {
  if (n_passes_ == 0) {
    fail("shard " + std::to_string(shard_) +
         " made no backward pass; each shard of for_each_shard() calls backward() once");
  }
  if (shard_ + 1 < own_.hi) {
    std::vector<at::Tensor> gradients;
    gradients.reserve(parameters_.size());
    for (const NamedTensor& parameter : parameters_) {
      gradients.push_back(std::exchange(parameter.tensor.mutable_grad(), {}));
    }
    const c10::NoGradGuard no_grad;
    sums_.add(shard_, std::move(gradients));
  }
  shard_ = kNone;
}

void ShardGradients::add_earlier(std::size_t parameter, const at::Tensor& gradient) const {
  sums_.add_earlier(own_.hi - 1, parameter, gradient);
}

void ShardGradients::forget_sums() {
  sums_.clear();
}

void ShardGradients::give_up() {
  sums_.clear();
  shard_ = kNone;
}

CommHook ShardGradients::make_hook(const std::shared_ptr<ProcessGroup>& group) const {
  if (is_all_reduce_canonical(group->world_size(), n_shards_)) {
    return {};
  }
  return [this, group = std::weak_ptr(group)](const GradBucket& bucket) {
    const std::shared_ptr<ProcessGroup> alive = group.lock();
    UNISONO_CHECK(alive != nullptr, "a model outlives its group");
    return reduce_shards(
        *alive,
        nodes_of_bucket(bucket),
        bucket.buffer(),
        {.n_shards = n_shards_, .timeout = bucket.timeout(), .label = bucket.label()});
  };
}

// Each laid out as the bucket, which is the last. Zeros where the step was given up before.
std::vector<at::Tensor> ShardGradients::nodes_of_bucket(const GradBucket& bucket) const {
  const std::vector<const ShardSums::Node*> earlier = sums_.nodes_apart_from(own_.hi - 1);
  std::vector<at::Tensor> nodes;
  for (std::size_t node = 0; node + 1 < nodes_of(own_, n_shards_).size(); ++node) {
    nodes.push_back(at::zeros_like(bucket.buffer()));
    const std::vector<at::Tensor> views = gradient_views(bucket, nodes.back());
    for (std::size_t i = 0; i < views.size() && node < earlier.size(); ++i) {
      const std::size_t parameter = indices_.at(bucket.parameters()[i].unsafeGetTensorImpl());
      if (const at::Tensor& gradient = earlier[node]->tensors[parameter]; gradient.defined()) {
        views[i].copy_(gradient);
      }
    }
  }
  nodes.push_back(bucket.buffer());
  return nodes;
}

}  // namespace unisono::ddp
