#include "unisono/collective/topology.h"

#include <cstddef>
#include <map>

#include "unisono/base/error.h"

namespace unisono::collective {

Topology::Topology(int rank, std::span<const std::string> nodes) : rank_(rank) {
  UNISONO_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < nodes.size(),
                "a rank outside its world");
  std::map<std::string, int> numbers;
  for (const std::string& name : nodes) {
    const auto [entry, is_new] = numbers.try_emplace(name, n_nodes());
    if (is_new) {
      ranks_of_node_.emplace_back();
    }
    std::vector<int>& ranks = ranks_of_node_[static_cast<std::size_t>(entry->second)];
    local_rank_of_rank_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(world_size());
    node_of_rank_.push_back(entry->second);
  }
}

int Topology::node_of(int rank) const {
  return node_of_rank_.at(static_cast<std::size_t>(rank));
}

int Topology::local_rank_of(int rank) const {
  return local_rank_of_rank_.at(static_cast<std::size_t>(rank));
}

std::span<const int> Topology::ranks_of(int node) const {
  return ranks_of_node_.at(static_cast<std::size_t>(node));
}

}  // namespace unisono::collective
