#include "unisono/torch/ddp/logical_ranks/shard_buffers.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/logical_ranks/reduce_shards.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

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
  copy_all(of_first_shard_, buffers_);  // On rank 0; the others have none.
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

}  // namespace unisono::ddp
