#include "unisono/torch/ddp/logical_ranks/shard_sums.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"

namespace unisono::ddp {
namespace {

// -0 and zeros of an absent tensor make 0, as they do between ranks.
void add_to(at::Tensor& sum, const at::Tensor& tensor) {
  if (sum.defined() && tensor.defined()) {
    sum.add_(tensor);
  } else if (sum.defined()) {
    sum.add_(0);
  } else if (tensor.defined()) {
    sum = tensor;
    sum.add_(0);
  }
}

}  // namespace

void ShardSums::add(int shard, std::vector<at::Tensor> tensors) {
  UNISONO_CHECK(nodes_.empty() || nodes_.back().shards.hi == shard,
                "shards are added out of their order");
  Node node{.shards = {.lo = shard, .hi = shard + 1}, .tensors = std::move(tensors)};
  while (!nodes_.empty() && is_one_node(nodes_.back().shards, node.shards, n_shards_)) {
    Node sum = std::move(nodes_.back());
    nodes_.pop_back();
    for (std::size_t i = 0; i < sum.tensors.size(); ++i) {
      add_to(sum.tensors[i], node.tensors[i]);
    }
    sum.shards.hi = node.shards.hi;
    node = std::move(sum);
  }
  nodes_.push_back(std::move(node));
}

std::size_t ShardSums::count_joining(int shard) const {
  ShardRange sum{.lo = shard, .hi = shard + 1};
  std::size_t n_joining = 0;
  while (n_joining < nodes_.size()) {
    const ShardRange before = nodes_[nodes_.size() - 1 - n_joining].shards;
    if (!is_one_node(before, sum, n_shards_)) {
      break;
    }
    sum.lo = before.lo;
    ++n_joining;
  }
  return n_joining;
}

void ShardSums::add_earlier(int shard, std::size_t index, const at::Tensor& tensor) const {
  at::Tensor sum = tensor;
  const std::size_t n_joining = count_joining(shard);
  for (std::size_t i = 0; i < n_joining; ++i) {
    add_to(sum, nodes_[nodes_.size() - 1 - i].tensors[index]);
  }
}

std::vector<const ShardSums::Node*> ShardSums::nodes_apart_from(int shard) const {
  std::vector<const Node*> nodes;
  const std::size_t n_apart = nodes_.size() - count_joining(shard);
  for (std::size_t i = 0; i < n_apart; ++i) {
    nodes.push_back(&nodes_[i]);
  }
  return nodes;
}

bool ShardSums::has(std::size_t index) const {
  return std::ranges::any_of(nodes_,
                             [&](const Node& node) { return node.tensors[index].defined(); });
}

}  // namespace unisono::ddp
