#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::collective {

/// Which ranks share a node, as rank `rank` sees it. Nodes are numbered by their lowest rank.
class Topology {
 public:
  /// `nodes[r]` names the node of rank r.
  Topology(int rank, std::span<const std::string> nodes);

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int world_size() const { return static_cast<int>(node_of_rank_.size()); }

  [[nodiscard]] int n_nodes() const { return static_cast<int>(ranks_of_node_.size()); }

  /// The node of this rank, or of any.
  [[nodiscard]] int node() const { return node_of(rank_); }

  [[nodiscard]] int node_of(int rank) const;

  /// The ranks of a node, ascending.
  [[nodiscard]] std::span<const int> ranks_of(int node) const;

  /// The ranks of this rank's node, ascending.
  [[nodiscard]] std::span<const int> local_ranks() const { return ranks_of(node()); }

  /// Index of `rank` among the ranks of its node.
  [[nodiscard]] int local_rank_of(int rank) const;

  /// This rank's index in local_ranks().
  [[nodiscard]] int local_rank() const { return local_rank_of(rank_); }

  [[nodiscard]] int local_world_size() const { return static_cast<int>(local_ranks().size()); }

 private:
  int rank_;
  std::vector<int> node_of_rank_;
  std::vector<int> local_rank_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
};

}  // namespace unisono::collective
