#include "unisono/collective/all_reduce_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

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

ChunkPlan plan_owned_chunk(const Topology& topology, int chunk) {
  ChunkPlan plan{.chunk = chunk};
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      const int peer = deputy_for(topology, node, chunk);
      plan.partials_from.push_back(partials_of(topology, node, peer));
      plan.result_to.push_back(peer);
    }
  }
  plan_combination(topology, plan);
  return plan;
}

ChunkPlan plan_deputized_chunk(const Topology& topology, int chunk) {
  const int owner = chunk;
  return {.chunk = chunk,
          .partials = partials_of(topology, topology.node(), topology.rank()).subtrees,
          .partials_to = {owner},
          .result_from = owner};
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

AllReducePlan two_shot_plan(const Topology& topology) {
  AllReducePlan plan{.n_chunks = topology.world_size(), .chunks = {}};
  for (int chunk = 0; chunk < plan.n_chunks; ++chunk) {
    if (chunk == topology.rank()) {
      plan.chunks.push_back(plan_owned_chunk(topology, chunk));
    } else if (deputy_for(topology, topology.node(), chunk) == topology.rank()) {
      plan.chunks.push_back(plan_deputized_chunk(topology, chunk));
    }
  }
  return plan;
}

AllReducePlan one_shot_plan(const Topology& topology) {
  AllReducePlan plan{.n_chunks = 1, .chunks = {}};
  if (topology.local_rank() != 0) {
    return plan;
  }
  ChunkPlan chunk{.chunk = 0};
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      const int leader = topology.ranks_of(node).front();
      chunk.partials_to.push_back(leader);
      chunk.partials_from.push_back(partials_of(topology, node, leader));
    }
  }
  if (!chunk.partials_to.empty()) {
    chunk.partials = partials_of(topology, topology.node(), topology.rank()).subtrees;
  }
  plan_combination(topology, chunk);
  plan.chunks.push_back(std::move(chunk));
  return plan;
}

}  // namespace unisono::collective
