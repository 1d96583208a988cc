#pragma once

#include <cstdint>
#include <vector>

#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/topology.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::collective {

/// Elements begin, ..., end - 1 of a buffer.
struct ElementRange {
  std::int64_t begin;
  std::int64_t end;

  [[nodiscard]] std::int64_t count() const { return end - begin; }

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// Chunk `index` of `n_chunks` of a range. Chunks are equal but for the last ones, and start at
/// multiples of `granularity` elements from the range's begin, so that ranks share no cache line.
[[nodiscard]] ElementRange chunk_of(ElementRange range,
                                    int n_chunks,
                                    int index,
                                    std::int64_t granularity);

/// What a node holds whole of the canonical tree: sent as partial results, one after the other.
struct Partials {
  int rank;  ///< The rank of that node that sends them.
  std::vector<RankRange> subtrees;
};

/// An input of the combination of a chunk.
struct CombineInput {
  RankRange range;
  /// Rank of this node whose own elements are read, or -1.
  int own_rank;
  /// Else where the partial result comes from: index into `partials_from`, and which of its
  /// subtrees.
  int part;
  int subtree;
};

/// What a rank does for one chunk of a buffer, in this order.
struct ChunkPlan {
  int chunk = 0;
  /// Partial results that it computes from its node's ranks, and the ranks that get them.
  std::vector<RankRange> partials = {};
  std::vector<int> partials_to = {};
  /// Partial results that it receives.
  std::vector<Partials> partials_from = {};
  /// If it combines everything to the result: the inputs and their order. Else empty.
  std::vector<CombineInput> inputs = {};
  std::vector<kernels::ReduceStep> steps = {};
  /// The ranks of other nodes that get the result from it, or the rank it gets it from, or -1. In
  /// either case it writes the result to those ranks of its node that are to have it.
  std::vector<int> result_to = {};
  int result_from = -1;

  [[nodiscard]] bool combines() const { return !inputs.empty(); }
};

/// Which ranks a reduction's result is for.
struct Receivers {
  enum class Kind : std::uint8_t {
    kAll,   ///< Every rank gets every chunk: all_reduce.
    kRoot,  ///< One rank gets every chunk: reduce.
    kOwner  ///< Rank r gets chunk r: reduce_scatter.
  };

  Kind kind = Kind::kAll;
  int root = 0;  ///< Of kRoot.

  /// Whether `rank` gets chunk `chunk`.
  [[nodiscard]] bool include(int rank, int chunk) const;
};

/// One rank's part in a reduction.
struct ReducePlan {
  Receivers receivers;
  int n_chunks;
  std::vector<ChunkPlan> chunks;  ///< Those that this rank has a part in, in order of chunk.
};

/// The schedule with the least traffic: each rank owns one chunk. On every other node one rank, its
/// deputy for that chunk, combines what the node holds and sends it to the owner; where a rank of
/// its node is to have the result, it receives that and passes it on. With a single node nothing is
/// sent.
///
/// For all ranks, 2 (K - 1) / K of the buffer leaves each of K nodes of equal, aligned size: the
/// bandwidth lower bound of an all-reduce.
[[nodiscard]] ReducePlan two_shot_plan(const Topology& topology, Receivers receivers = {});

/// The schedule with the fewest steps between nodes: one rank of each node that holds a receiver
/// gets the partial results of all other nodes, and combines everything itself. Not for kOwner.
[[nodiscard]] ReducePlan one_shot_plan(const Topology& topology, Receivers receivers = {});

/// The rank of `node` that works on `chunk` on behalf of its node.
[[nodiscard]] int deputy_for(const Topology& topology, int node, int chunk);

}  // namespace unisono::collective
