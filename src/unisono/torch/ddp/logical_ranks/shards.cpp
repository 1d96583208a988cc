#include "unisono/torch/ddp/logical_ranks/shards.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>

#include <ATen/Functions.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/kernels/reduce.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

namespace {

bool is_node(ShardRange shards, int n_shards) {
  ShardRange node{.lo = 0, .hi = n_shards};
  while (node.size() > shards.size()) {
    const int mid = collective::split_point(node);
    if (shards.hi <= mid) {
      node.hi = mid;
    } else if (shards.lo >= mid) {
      node.lo = mid;
    } else {
      return false;
    }
  }
  return node == shards;
}

}  // namespace

ShardRange shards_of(int rank, int world_size, int n_shards) {
  const auto start_of = [&](std::int64_t index) {
    return static_cast<int>(index * n_shards / world_size);
  };
  return {.lo = start_of(rank), .hi = start_of(std::int64_t{rank} + 1)};
}

bool is_all_reduce_canonical(int world_size, int n_shards) {
  return n_shards % world_size == 0 &&
         std::has_single_bit(static_cast<unsigned>(n_shards / world_size));
}

bool is_one_node(ShardRange left, ShardRange right, int n_shards) {
  const ShardRange sum{.lo = left.lo, .hi = right.hi};
  return collective::split_point(sum) == right.lo && is_node(sum, n_shards);
}

std::vector<ShardRange> nodes_of(ShardRange shards, int n_shards) {
  std::vector<int> indices(static_cast<std::size_t>(shards.size()));
  std::iota(indices.begin(), indices.end(), shards.lo);
  return collective::maximal_subtrees(indices, n_shards);
}

namespace {

// -0 plus the zeros of an absent tensor gives 0, as in sums between ranks.
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

namespace {

std::vector<std::vector<ShardRange>> nodes_of_ranks(int world_size, int n_shards) {
  std::vector<std::vector<ShardRange>> of_ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    of_ranks.push_back(nodes_of(shards_of(rank, world_size, n_shards), n_shards));
  }
  return of_ranks;
}

// Returns the root of the tree, computed from `blocks[rank][node]`.
at::Tensor combine(const std::vector<std::vector<ShardRange>>& of_ranks,
                   const at::Tensor& blocks,
                   int n_shards) {
  std::vector<ShardRange> inputs;
  std::vector<at::Tensor> values;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (std::size_t node = 0; node < of_ranks[rank].size(); ++node) {
      inputs.push_back(of_ranks[rank][node]);
      values.push_back(blocks[static_cast<std::int64_t>(rank)][static_cast<std::int64_t>(node)]);
    }
  }
  for (const auto& step : collective::reduce_steps(inputs, {.lo = 0, .hi = n_shards})) {
    values.push_back(at::add(values[static_cast<std::size_t>(step.lhs)],
                             values[static_cast<std::size_t>(step.rhs)]));
  }
  return values.back();
}

}  // namespace

// Each rank adds one slice of the tensor.
BucketWork reduce_shards(ProcessGroup& group,
                         const std::vector<at::Tensor>& nodes,
                         const at::Tensor& sum,
                         const ReduceShardsOptions& options) {
  const std::int64_t world_size = group.world_size();
  const std::vector<std::vector<ShardRange>> of_ranks =
      nodes_of_ranks(group.world_size(), options.n_shards);
  UNISONO_CHECK(of_ranks[static_cast<std::size_t>(group.rank())].size() == nodes.size(),
                "a rank has other nodes than its shards have");
  std::size_t most = 0;
  for (const std::vector<ShardRange>& of_rank : of_ranks) {
    most = std::max(most, of_rank.size());
  }
  const std::int64_t slice = (sum.numel() + world_size - 1) / world_size;
  const at::Tensor sent =
      at::zeros({world_size, static_cast<std::int64_t>(most), slice}, sum.options());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const at::Tensor padded =
        at::constant_pad_nd(nodes[node], {0, world_size * slice - sum.numel()});
    sent.select(1, static_cast<std::int64_t>(node)).copy_(padded.view({world_size, slice}));
  }
  const at::Tensor blocks = at::empty_like(sent);
  const int n_shards = options.n_shards;
  const AllGatherOptions gather_options{.timeout = options.timeout, .label = options.label};
  return {.work = all_to_all_async(
              group, sent, blocks, {.timeout = options.timeout, .label = options.label}),
          .then = [&group, of_ranks, blocks, sum, n_shards, slice, gather_options]() -> BucketWork {
            const at::Tensor own = combine(of_ranks, blocks, n_shards).contiguous();
            const at::Tensor gathered = at::empty({group.world_size() * slice}, sum.options());
            return {.work = all_gather_async(group, own, gathered, gather_options),
                    .then = [sum, gathered]() -> BucketWork {
                      sum.copy_(gathered.narrow(0, 0, sum.numel()));
                      return {};
                    }};
          }};
}

void finish(BucketWork work) {
  work.work.wait();
  while (work.then) {
    work = std::exchange(work.then, {})();
    work.work.wait();
  }
}

}  // namespace unisono::ddp
