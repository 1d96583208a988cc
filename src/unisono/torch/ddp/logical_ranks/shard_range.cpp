#include "unisono/torch/ddp/logical_ranks/shard_range.h"

#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unisono/collective/canonical_tree.h"

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

}  // namespace unisono::ddp
