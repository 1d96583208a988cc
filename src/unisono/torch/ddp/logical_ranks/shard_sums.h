#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/logical_ranks/shard_range.h"

namespace unisono::ddp {

/// Sums of shards' tensors, one list of equally many tensors for each shard, added as early as the
/// canonical tree over all shards adds them. An undefined tensor counts as zeros.
///
/// Holds at most one list for each level of the tree. Not thread-safe.
class ShardSums {
 public:
  struct Node {
    ShardRange shards;
    std::vector<at::Tensor> tensors;
  };

  explicit ShardSums(int n_shards) : n_shards_(n_shards) {}

  /// Takes the tensors of the shard behind those that were added before. They are changed in place.
  void add(int shard, std::vector<at::Tensor> tensors);

  /// Adds to `tensor`, tensor `index` of shard `shard`, what the tree adds to it before anything of
  /// later shards. Changes nothing else.
  void add_earlier(int shard, std::size_t index, const at::Tensor& tensor) const;

  /// The nodes that add_earlier() leaves out, in the order of their shards.
  [[nodiscard]] std::vector<const Node*> nodes_apart_from(int shard) const;

  /// In the order of their shards.
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

  /// Whether any shard has this tensor.
  [[nodiscard]] bool has(std::size_t index) const;

  void clear() { nodes_.clear(); }

 private:
  // How many of the last nodes make up one with the shard behind them.
  [[nodiscard]] std::size_t count_joining(int shard) const;

  int n_shards_;
  std::vector<Node> nodes_;
};

}  // namespace unisono::ddp
