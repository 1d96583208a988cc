#include "unisono/collective/reduce_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/topology.h"

namespace unisono::collective {
namespace {

// Fills in what the rank that combines a chunk needs: its node's own elements, and the partial
// results of the other nodes, in order of rank.
void plan_combination(const Topology& topology, ChunkPlan& plan) {
  for (const int rank : topology.local_ranks()) {
    plan.inputs.push_back({.range = {rank, rank + 1}, .own_rank = rank, .part = -1, .subtree = -1});
  }
  for (std::size_t part = 0; part < plan.partials_from.size(); ++part) {
    const std::vector<RankRange>& subtrees = plan.partials_from[part].subtrees;
    for (std::size_t subtree = 0; subtree < subtrees.size(); ++subtree) {
      plan.inputs.push_back({.range = subtrees[subtree],
                             .own_rank = -1,
                             .part = static_cast<int>(part),
                             .subtree = static_cast<int>(subtree)});
    }
  }
  std::sort(plan.inputs.begin(),
            plan.inputs.end(),
            [](const CombineInput& a, const CombineInput& b) { return a.range.lo < b.range.lo; });
  std::vector<RankRange> ranges;
  for (const CombineInput& input : plan.inputs) {
    ranges.push_back(input.range);
  }
  plan.steps = reduce_steps(ranges, {0, topology.world_size()});
}

Partials partials_of(const Topology& topology, int node, int sender) {
  return {.rank = sender,
          .subtrees = maximal_subtrees(topology.ranks_of(node), topology.world_size())};
}

// Whether some rank of the node gets the chunk.
bool is_wanted_on(const Topology& topology, int node, int chunk, Receivers receivers) {
  const auto ranks = topology.ranks_of(node);
  return std::any_of(
      ranks.begin(), ranks.end(), [&](int rank) { return receivers.include(rank, chunk); });
}

ChunkPlan plan_owned_chunk(const Topology& topology, int chunk, Receivers receivers) {
  ChunkPlan plan{.chunk = chunk};
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      const int peer = deputy_for(topology, node, chunk);
      plan.partials_from.push_back(partials_of(topology, node, peer));
      if (is_wanted_on(topology, node, chunk, receivers)) {
        plan.result_to.push_back(peer);
      }
    }
  }
  plan_combination(topology, plan);
  return plan;
}

ChunkPlan plan_deputized_chunk(const Topology& topology, int chunk, Receivers receivers) {
  const int owner = chunk;
  const bool is_wanted = is_wanted_on(topology, topology.node(), chunk, receivers);
  return {.chunk = chunk,
          .partials = partials_of(topology, topology.node(), topology.rank()).subtrees,
          .partials_to = {owner},
          .result_from = is_wanted ? owner : -1};
}

// The rank that speaks for its node where few messages count: a receiver, if the node has one.
int leader_of(const Topology& topology, int node, Receivers receivers) {
  const bool is_roots_node =
      receivers.kind == Receivers::Kind::kRoot && topology.node_of(receivers.root) == node;
  return is_roots_node ? receivers.root : topology.ranks_of(node).front();
}

}  // namespace

ElementRange chunk_of(ElementRange range, int n_chunks, int index, std::int64_t granularity) {
  const std::int64_t share = (range.count() + n_chunks - 1) / n_chunks;
  const std::int64_t size = (share + granularity - 1) / granularity * granularity;
  const std::int64_t begin = std::min(range.begin + index * size, range.end);
  return {.begin = begin, .end = std::min(begin + size, range.end)};
}

int deputy_for(const Topology& topology, int node, int chunk) {
  // The owner of a chunk acts for its own node; elsewhere the chunks go round.
  if (topology.node_of(chunk) == node) {
    return chunk;
  }
  const auto ranks = topology.ranks_of(node);
  return ranks[static_cast<std::size_t>(chunk) % ranks.size()];
}

bool Receivers::include(int rank, int chunk) const {
  switch (kind) {
    case Kind::kAll:
      return true;
    case Kind::kRoot:
      return rank == root;
    case Kind::kOwner:
      return rank == chunk;
  }
  return false;
}

ReducePlan two_shot_plan(const Topology& topology, Receivers receivers) {
  ReducePlan plan{.receivers = receivers, .n_chunks = topology.world_size(), .chunks = {}};
  for (int chunk = 0; chunk < plan.n_chunks; ++chunk) {
    if (chunk == topology.rank()) {
      plan.chunks.push_back(plan_owned_chunk(topology, chunk, receivers));
    } else if (deputy_for(topology, topology.node(), chunk) == topology.rank()) {
      plan.chunks.push_back(plan_deputized_chunk(topology, chunk, receivers));
    }
  }
  return plan;
}

ReducePlan one_shot_plan(const Topology& topology, Receivers receivers) {
  UNISONO_CHECK(receivers.kind != Receivers::Kind::kOwner, "one-shot leaves no rank a chunk");
  ReducePlan plan{.receivers = receivers, .n_chunks = 1, .chunks = {}};
  if (leader_of(topology, topology.node(), receivers) != topology.rank()) {
    return plan;
  }
  const auto is_receiving = [&](int node) { return is_wanted_on(topology, node, 0, receivers); };
  ChunkPlan chunk{.chunk = 0};
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node == topology.node()) {
      continue;
    }
    const int leader = leader_of(topology, node, receivers);
    if (is_receiving(node)) {
      chunk.partials_to.push_back(leader);
    }
    if (is_receiving(topology.node())) {
      chunk.partials_from.push_back(partials_of(topology, node, leader));
    }
  }
  if (!chunk.partials_to.empty()) {
    chunk.partials = partials_of(topology, topology.node(), topology.rank()).subtrees;
  }
  if (is_receiving(topology.node())) {
    plan_combination(topology, chunk);
  }
  plan.chunks.push_back(std::move(chunk));
  return plan;
}

}  // namespace unisono::collective
