#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::collective {

/// The assignment of ranks to nodes, with rank `rank` as this rank. Nodes are numbered in the order
/// of the lowest rank. Immutable after construction; any thread may read.
class Topology {
 public:
  /// `nodes[r]` names the node of rank r.
  Topology(int rank, std::span<const std::string> nodes);

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int world_size() const { return static_cast<int>(node_of_rank_.size()); }

  [[nodiscard]] int n_nodes() const { return static_cast<int>(ranks_of_node_.size()); }

  /// Returns the node of this rank; node_of() returns the node of any rank.
  [[nodiscard]] int node() const { return node_of(rank_); }

  [[nodiscard]] int node_of(int rank) const;

  /// Returns the ranks of a node, ascending.
  [[nodiscard]] std::span<const int> ranks_of(int node) const;

  /// Returns the ranks of this rank's node, ascending.
  [[nodiscard]] std::span<const int> local_ranks() const { return ranks_of(node()); }

  /// Returns the index of `rank` among the ranks of its node.
  [[nodiscard]] int local_rank_of(int rank) const;

  /// Returns the index of this rank in local_ranks().
  [[nodiscard]] int local_rank() const { return local_rank_of(rank_); }

  [[nodiscard]] int local_world_size() const { return static_cast<int>(local_ranks().size()); }

 private:
  int rank_;
  std::vector<int> node_of_rank_;
  std::vector<int> local_rank_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
};

}  // namespace unisono::collective
