#include "unisono/collective/reduce_plan.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::collective {
namespace {

// Adds the inputs and steps of the combining rank: the elements of the node's ranks and the partial
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

// Returns true if a rank of the node receives the chunk.
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

// Returns the rank that represents a node in one-shot: the root on the root's node, otherwise the
// node's first rank.
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
  // The owner of a chunk (the rank with the chunk's index) works for the owner's node. On other
  // nodes the chunks are distributed round-robin.
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
  UNISONO_CHECK(receivers.kind != Receivers::Kind::kOwner, "one_shot assigns no chunks to ranks");
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

namespace {

// A block of ranks lo, ..., lo + size - 1. The size is a power of two.
struct Block {
  int lo;
  int size;
};

// Splits the ranks like the canonical tree: repeatedly at the largest power of two.
std::vector<Block> binary_blocks(int world_size) {
  std::vector<Block> blocks;
  for (int lo = 0; lo < world_size; lo += blocks.back().size) {
    blocks.push_back(
        {.lo = lo,
         .size = static_cast<int>(std::bit_floor(static_cast<unsigned>(world_size - lo)))});
  }
  return blocks;
}

// Returns the chunks that remain for a rank of a block after `n_steps` halvings. The first halving
// is with the direct neighbor.
ChunkRange chunks_after(int index_in_block, int n_steps, int n_chunks) {
  ChunkRange range{.begin = 0, .end = n_chunks};
  for (int step = 0; step < n_steps; ++step) {
    const int half = range.size() / 2;
    const bool keeps_upper = (index_in_block >> step & 1) != 0;
    range.begin += keeps_upper ? half : 0;
    range.end = range.begin + half;
  }
  return range;
}

int log2_of(int power) {
  return std::countr_zero(static_cast<unsigned>(power));
}

// Returns the chunks that a rank combines within the block.
ChunkRange share_of(Block block, int rank, int n_chunks) {
  return chunks_after(rank - block.lo, log2_of(block.size), n_chunks);
}

// Returns the ranks of `block` with shares that overlap `range`.
std::vector<int> ranks_sharing(Block block, ChunkRange range, int n_chunks) {
  std::vector<int> ranks;
  for (int rank = block.lo; rank < block.lo + block.size; ++rank) {
    const ChunkRange share = share_of(block, rank, n_chunks);
    if (share.begin < range.end && range.begin < share.end) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void add_halving(StepPlan& plan, Block block, int rank, int n_steps) {
  for (int step = 0; step < n_steps; ++step) {
    Step& halving = plan.combining.emplace_back();
    if (1 << step < block.size) {
      const int partner = block.lo + ((rank - block.lo) ^ 1 << step);
      halving.sends.push_back(
          {.to = partner, .chunks = chunks_after(partner - block.lo, step + 1, plan.n_chunks)});
      halving.receives.push_back({.from = partner,
                                  .chunks = chunks_after(rank - block.lo, step + 1, plan.n_chunks),
                                  .is_left = partner < rank});
    }
  }
}

// Adds the steps that combine the blocks, starting with the smallest: each block sends the result
// to the next larger block.
void add_folding(StepPlan& plan, const std::vector<Block>& blocks, int rank) {
  for (std::size_t from = blocks.size() - 1; from > 0; --from) {
    const Block giver = blocks[from];
    const Block taker = blocks[from - 1];
    Step& fold = plan.combining.emplace_back();
    if (rank >= giver.lo && rank < giver.lo + giver.size) {
      for (const int to :
           ranks_sharing(taker, share_of(giver, rank, plan.n_chunks), plan.n_chunks)) {
        fold.sends.push_back({.to = to, .chunks = share_of(taker, to, plan.n_chunks)});
      }
    } else if (rank >= taker.lo && rank < taker.lo + taker.size) {
      const ChunkRange share = share_of(taker, rank, plan.n_chunks);
      fold.receives.push_back(
          {.from = ranks_sharing(giver, share, plan.n_chunks).front(), .chunks = share});
    }
  }
}

// Adds the step in which the largest block sends the result to the other blocks.
void add_unfolding(StepPlan& plan, const std::vector<Block>& blocks, Block mine, int rank) {
  if (blocks.size() == 1) {
    return;
  }
  const Block first = blocks.front();
  const ChunkRange share = share_of(mine, rank, plan.n_chunks);
  Step& unfold = plan.spreading.emplace_back();
  if (mine.lo != first.lo) {
    for (const int from : ranks_sharing(first, share, plan.n_chunks)) {
      unfold.receives.push_back({.from = from, .chunks = share_of(first, from, plan.n_chunks)});
    }
    return;
  }
  for (std::size_t other = 1; other < blocks.size(); ++other) {
    unfold.sends.push_back(
        {.to = ranks_sharing(blocks[other], share, plan.n_chunks).front(), .chunks = share});
  }
}

void add_doubling(StepPlan& plan, Block block, int rank, int n_steps) {
  for (int step = n_steps - 1; step >= 0; --step) {
    Step& doubling = plan.spreading.emplace_back();
    if (1 << step < block.size) {
      const int partner = block.lo + ((rank - block.lo) ^ 1 << step);
      doubling.sends.push_back(
          {.to = partner, .chunks = chunks_after(rank - block.lo, step + 1, plan.n_chunks)});
      doubling.receives.push_back(
          {.from = partner, .chunks = chunks_after(partner - block.lo, step + 1, plan.n_chunks)});
    }
  }
}

}  // namespace

StepPlan tree_plan(int rank, int world_size) {
  StepPlan plan;
  constexpr ChunkRange kWhole{.begin = 0, .end = 1};
  for (int distance = 1; distance < world_size; distance *= 2) {
    Step up;
    Step down;
    const int place = rank % (2 * distance);
    if (place == distance) {
      up.sends.push_back({.to = rank - distance, .chunks = kWhole});
      down.receives.push_back({.from = rank - distance, .chunks = kWhole});
    } else if (place == 0 && rank + distance < world_size) {
      up.receives.push_back({.from = rank + distance, .chunks = kWhole});
      down.sends.push_back({.to = rank + distance, .chunks = kWhole});
    }
    plan.combining.push_back(up);
    plan.spreading.push_back(down);
  }
  std::reverse(plan.spreading.begin(), plan.spreading.end());
  plan.finished = rank == 0 ? kWhole : ChunkRange{.begin = 0, .end = 0};
  return plan;
}

StepPlan halving_doubling_plan(int rank, int world_size) {
  const std::vector<Block> blocks = binary_blocks(world_size);
  const Block mine = *std::find_if(
      blocks.begin(), blocks.end(), [rank](Block block) { return rank < block.lo + block.size; });
  StepPlan plan;
  plan.n_chunks = blocks.front().size;
  const int n_halvings = log2_of(plan.n_chunks);
  add_halving(plan, mine, rank, n_halvings);
  add_folding(plan, blocks, rank);
  if (mine.lo == 0) {
    plan.finished = share_of(mine, rank, plan.n_chunks);
  }
  add_unfolding(plan, blocks, mine, rank);
  add_doubling(plan, mine, rank, n_halvings);
  return plan;
}

StepPlan ring_plan(int rank, int world_size) {
  StepPlan plan;
  constexpr ChunkRange kWhole{.begin = 0, .end = 1};
  plan.passing = Passing::kArrived;
  const int next = (rank + 1) % world_size;
  const int previous = (rank + world_size - 1) % world_size;
  for (int step = 1; step < world_size; ++step) {
    plan.combining.push_back({.sends = {{.to = next, .chunks = kWhole}},
                              .receives = {{.from = previous, .chunks = kWhole}}});
  }
  plan.finished = kWhole;
  return plan;
}

StepPlan chunked_ring_plan(int rank, int world_size) {
  StepPlan plan;
  plan.n_chunks = world_size;
  const int next = (rank + 1) % world_size;
  const int previous = (rank + world_size - 1) % world_size;
  const auto chunk = [world_size](int index) -> ChunkRange {
    const int begin = (index + 2 * world_size) % world_size;
    return {.begin = begin, .end = begin + 1};
  };
  for (int step = 0; step < world_size - 1; ++step) {
    plan.combining.push_back(
        {.sends = {{.to = next, .chunks = chunk(rank - step)}},
         .receives = {{.from = previous, .chunks = chunk(rank - step - 1), .is_left = true}}});
    plan.spreading.push_back({.sends = {{.to = next, .chunks = chunk(rank + 1 - step)}},
                              .receives = {{.from = previous, .chunks = chunk(rank - step)}}});
  }
  plan.finished = chunk(rank + 1);
  return plan;
}

StepPlan parameter_server_plan(int rank, int world_size) {
  StepPlan plan;
  constexpr ChunkRange kWhole{.begin = 0, .end = 1};
  for (int other = 1; other < world_size; ++other) {
    Step& step = plan.combining.emplace_back();
    if (rank == 0) {
      step.receives.push_back({.from = other, .chunks = kWhole});
    } else if (rank == other) {
      step.sends.push_back({.to = 0, .chunks = kWhole});
    }
  }
  plan.finished = rank == 0 ? kWhole : ChunkRange{.begin = 0, .end = 0};
  if (world_size > 1) {
    Step& back = plan.spreading.emplace_back();
    for (int other = 1; rank == 0 && other < world_size; ++other) {
      back.sends.push_back({.to = other, .chunks = kWhole});
    }
    if (rank != 0) {
      back.receives.push_back({.from = 0, .chunks = kWhole});
    }
  }
  return plan;
}

bool goes_in_steps(Algorithm algorithm) {
  return algorithm == Algorithm::kTree || algorithm == Algorithm::kHalvingDoubling ||
         algorithm == Algorithm::kRing || algorithm == Algorithm::kChunkedRing ||
         algorithm == Algorithm::kParameterServer;
}

StepPlan step_plan(Algorithm algorithm, int rank, int world_size) {
  switch (algorithm) {
    case Algorithm::kTree:
      return tree_plan(rank, world_size);
    case Algorithm::kHalvingDoubling:
      return halving_doubling_plan(rank, world_size);
    case Algorithm::kRing:
      return ring_plan(rank, world_size);
    case Algorithm::kChunkedRing:
      return chunked_ring_plan(rank, world_size);
    case Algorithm::kParameterServer:
      return parameter_server_plan(rank, world_size);
    default:
      break;
  }
  UNISONO_CHECK(false, "an algorithm does not go step by step");
}

}  // namespace unisono::collective
