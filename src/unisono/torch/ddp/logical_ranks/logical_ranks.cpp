#include "unisono/torch/ddp/logical_ranks/logical_ranks.h"

#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/data/random.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"
#include "unisono/torch/ddp/model_check.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono::ddp {
namespace {

std::vector<std::vector<at::Tensor>> to_average(const std::vector<at::Tensor>& buffers,
                                                ShardBuffers rule) {
  std::vector<std::vector<at::Tensor>> by_type;
  if (rule == ShardBuffers::kMean) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      by_type.emplace_back();
      for (const at::Tensor& buffer : buffers) {
        if (buffer.scalar_type() == type) {
          by_type.back().push_back(buffer);
        }
      }
    }
    std::erase_if(by_type, [](const auto& tensors) { return tensors.empty(); });
  }
  return by_type;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.detach().clone());
  }
  return copies;
}

void copy_all(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) {
    to[i].copy_(from[i]);
  }
}

}  // namespace

std::uint64_t shard_seed(std::uint64_t seed, std::int64_t step, int shard) {
  return data::Random::of_sample(static_cast<std::int64_t>(seed), step, shard).next();
}

BufferStep::BufferStep(const std::vector<NamedTensor>& buffers, ShardBuffers rule, int n_shards)
    : buffers_(tensors_of(buffers)),
      means_(to_average(buffers_, rule)),
      from_first_rank_(buffers, "buffers"),
      n_shards_(n_shards),
      sums_(n_shards) {}

void BufferStep::begin() {
  at_begin_ = copies_of(buffers_);
  of_first_shard_.clear();
  sums_.clear();
}

void BufferStep::reset() {
  copy_all(at_begin_, buffers_);
}

void BufferStep::take(int shard) {
  if (shard == 0) {
    of_first_shard_ = copies_of(buffers_);
  }
  if (!means_.empty()) {
    sums_.add(shard, flatten_means());
  }
}

void BufferStep::end(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout) {
  if (buffers_.empty()) {
    return;
  }
  copy_all(of_first_shard_, buffers_);  // Empty list except on rank 0.
  from_first_rank_.run(group, timeout);
  if (!means_.empty()) {
    set_means(reduce(group, timeout));
  }
}

std::vector<at::Tensor> BufferStep::flatten_means() const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const std::vector<at::Tensor>& of_type : means_) {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& buffer : of_type) {
      rows.push_back(buffer.detach().reshape({-1}));
    }
    flat.push_back(at::cat(rows));
  }
  return flat;
}

std::vector<at::Tensor> BufferStep::reduce(ProcessGroup& group,
                                           std::optional<std::chrono::milliseconds> timeout) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> means;
  for (std::size_t type = 0; type < means_.size(); ++type) {
    std::vector<at::Tensor> nodes;
    for (const ShardSums::Node& node : sums_.nodes()) {
      nodes.push_back(node.tensors[type]);
    }
    const at::Tensor sum = nodes.back();
    finish(reduce_shards(group,
                         nodes,
                         sum,
                         {.n_shards = n_shards_, .timeout = timeout, .label = "mean of buffers"}));
    means.push_back(sum.div_(n_shards_));
  }
  return means;
}

void BufferStep::set_means(const std::vector<at::Tensor>& flat) const {
  const c10::NoGradGuard no_grad;
  for (std::size_t type = 0; type < means_.size(); ++type) {
    std::int64_t offset = 0;
    for (const at::Tensor& buffer : means_[type]) {
      buffer.copy_(flat[type].narrow(0, offset, buffer.numel()).view(buffer.sizes()));
      offset += buffer.numel();
    }
  }
}

LogicalRanks::LogicalRanks(PassContext& context)
    : context_(context),
      n_shards_(context.options.logical_ranks),
      own_(shards_of(context.group->rank(), context.group->world_size(), n_shards_)),
      buffers_(context.buffers, context.options.shard_buffers, n_shards_),
      sums_(n_shards_) {
  context.weights = {.is_summed = true, .divisor = n_shards_};
  context.hook_refusal = "with logical_ranks buckets are added in the canonical order only";
  // Adds up the ranks' sums where an all_reduce of the buckets does not come to the canonical tree
  // over all shards.
  if (!is_all_reduce_canonical(context.group->world_size(), n_shards_)) {
    context.hook = [this](const GradBucket& bucket) { return reduce(bucket); };
  }
}

void LogicalRanks::check(const std::vector<NamedTensor>& parameters) const {
  check_wide_types(
      parameters, "logical_ranks", "whose sums have the same bits wherever a shard runs");
}

void LogicalRanks::fail(const std::string& problem) const {
  throw Error(
      ErrorCode::kInvalidArgument,
      "[rank " + std::to_string(context_.group->rank()) + "] DistributedDataParallel: " + problem);
}

void LogicalRanks::run(Reducer& reducer,
                       const std::function<void(bool)>& set_synchronized,
                       const std::function<void(int)>& run_shard) {
  const RandomDevices devices = accelerators_of(tensors_of(context_.parameters));
  const KeptRandomState kept(devices);
  buffers_.begin();
  try {
    for (int shard = own_.lo; shard < own_.hi; ++shard) {
      seed_random(shard_seed(context_.options.shard_seed, step_, shard), devices);
      buffers_.reset();
      set_synchronized(shard + 1 == own_.hi);
      reducer.begin_step();
      begin_shard(shard);
      run_shard(shard);
      reducer.inspect_local_gradients();
      end_shard();
      buffers_.take(shard);
    }
  } catch (...) {
    buffers_.reset();
    reducer.give_up_step();
    sums_.clear();
    shard_ = kNone;
    set_synchronized(true);
    throw;
  }
  buffers_.end(*context_.group, context_.options.timeout);
  ++step_;
}

void LogicalRanks::begin_shard(int shard) {
  context_.drop_gradients();
  shard_ = shard;
  n_passes_ = 0;
}

void LogicalRanks::on_backward(bool /*is_synchronized*/, bool /*is_untouched*/) {
  if (shard_ == kNone) {
    fail("with logical_ranks backward() is called in for_each_shard() only");
  }
  if (++n_passes_ > 1) {
    fail("shard " + std::to_string(shard_) +
         " calls backward() a second time; add its losses, and call it once");
  }
}

// Keeps the gradients unless the shard is this rank's last, whose go into the buckets.
void LogicalRanks::end_shard() {
  if (n_passes_ == 0) {
    fail("shard " + std::to_string(shard_) +
         " made no backward pass; each shard of for_each_shard() calls backward() once");
  }
  if (shard_ + 1 < own_.hi) {
    std::vector<at::Tensor> gradients;
    gradients.reserve(context_.parameters.size());
    for (const NamedTensor& parameter : context_.parameters) {
      gradients.push_back(std::exchange(parameter.tensor.mutable_grad(), {}));
    }
    const c10::NoGradGuard no_grad;
    sums_.add(shard_, std::move(gradients));
  }
  shard_ = kNone;
}

void LogicalRanks::adjust(std::size_t parameter, const at::Tensor& gradient) {
  sums_.add_earlier(own_.hi - 1, parameter, gradient);
}

BucketWork LogicalRanks::reduce(const GradBucket& bucket) {
  return reduce_shards(
      *context_.group,
      nodes_of_bucket(bucket),
      bucket.buffer(),
      {.n_shards = n_shards_, .timeout = bucket.timeout(), .label = bucket.label()});
}

// Each node has the layout of the bucket; the bucket itself is the last node. Nodes are zeros if
// the step was aborted early.
std::vector<at::Tensor> LogicalRanks::nodes_of_bucket(const GradBucket& bucket) {
  const std::vector<const ShardSums::Node*> earlier = sums_.nodes_apart_from(own_.hi - 1);
  // Unfrozen parameters have come since, and the others have kept their numbers.
  for (std::size_t i = indices_.size(); i < context_.parameters.size(); ++i) {
    indices_.emplace(context_.parameters[i].tensor.unsafeGetTensorImpl(), i);
  }
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
