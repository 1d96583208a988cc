#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/collective/canonical_tree.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

/// Consecutive shards of a step, numbered like ranks of the canonical tree over all shards.
using ShardRange = collective::RankRange;

/// Returns the shards of a rank. The ranks' shares differ by at most one shard.
[[nodiscard]] ShardRange shards_of(int rank, int world_size, int n_shards);

/// Returns true if an all_reduce of the ranks' sums adds in the order of the canonical tree over
/// all shards: each rank then holds the same power of two of shards.
[[nodiscard]] bool is_all_reduce_canonical(int world_size, int n_shards);

/// Returns true if the union of two neighbouring ranges is a node of the canonical tree over all
/// shards.
[[nodiscard]] bool is_one_node(ShardRange left, ShardRange right, int n_shards);

/// Returns the maximal nodes of the canonical tree that the rank's shards cover.
[[nodiscard]] std::vector<ShardRange> nodes_of(ShardRange shards, int n_shards);

/// Sums of shards' tensors. Each shard contributes a list of equally many tensors, which is added
/// as early as the canonical tree over all shards permits. An undefined tensor counts as zeros.
///
/// Holds at most one list per level of the tree. Not thread-safe.
class ShardSums {
 public:
  struct Node {
    ShardRange shards;
    std::vector<at::Tensor> tensors;
  };

  /// `n_shards` is the number of shards of all ranks.
  explicit ShardSums(int n_shards) : n_shards_(n_shards) {}

  /// Adds the tensors of the next shard in order. The tensors are changed in place. Throws
  /// Error(kInternal) for a shard out of order.
  void add(int shard, std::vector<at::Tensor> tensors);

  /// Adds to `tensor`, which is tensor `index` of shard `shard`, the sums of earlier shards that
  /// the tree adds before any later shard. The object does not change.
  void add_earlier(int shard, std::size_t index, const at::Tensor& tensor) const;

  /// Returns the nodes that add_earlier() does not use, in the order of their shards.
  [[nodiscard]] std::vector<const Node*> nodes_apart_from(int shard) const;

  /// All nodes in the order of their shards.
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

  /// Returns true if any shard has this tensor.
  [[nodiscard]] bool has(std::size_t index) const;

  void clear() { nodes_.clear(); }

 private:
  // Returns the number of last nodes that form one node together with the following shard.
  [[nodiscard]] std::size_t count_joining(int shard) const;

  int n_shards_;
  std::vector<Node> nodes_;
};

/// Options of reduce_shards(), equal on every rank.
struct ReduceShardsOptions {
  int n_shards;
  std::optional<std::chrono::milliseconds> timeout;
  std::string label;
};

/// Starts to compute `sum` as the sum over all shards in the order of the canonical tree for any
/// assignment of shards to ranks. A collective operation.
///
/// `nodes`: this rank's sums of nodes_of() its shards, in that order; the last may be `sum`. All
/// tensors have one dimension and equal sizes. Each rank sends as much as in an all_reduce of the
/// tensor, and the tensor once more for each node beyond the first on the rank with the most nodes.
[[nodiscard]] BucketWork reduce_shards(ProcessGroup& group,
                                       const std::vector<at::Tensor>& nodes,
                                       const at::Tensor& sum,
                                       const ReduceShardsOptions& options);

/// Waits for the work and all its continuations.
void finish(BucketWork work);

}  // namespace unisono::ddp
