#pragma once

#include <vector>

#include "unisono/collective/canonical_tree.h"

namespace unisono::ddp {

/// Consecutive shards of a step, as ranks of the canonical tree over all of them.
using ShardRange = collective::RankRange;

/// The shards of a rank: its equal share of all, as near as that goes.
[[nodiscard]] ShardRange shards_of(int rank, int world_size, int n_shards);

/// Whether an all_reduce of the ranks' sums adds in the order of the canonical tree over all
/// shards: where each rank has the same power of two of them.
[[nodiscard]] bool is_all_reduce_canonical(int world_size, int n_shards);

/// Whether the sum of two neighbouring ranges is a node of the canonical tree over all shards.
[[nodiscard]] bool is_one_node(ShardRange left, ShardRange right, int n_shards);

/// What a rank is left with when it has added its shards as far as the canonical tree does.
[[nodiscard]] std::vector<ShardRange> nodes_of(ShardRange shards, int n_shards);

}  // namespace unisono::ddp
