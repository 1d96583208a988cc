#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/reduction.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/topology.h"
#include "unisono/kernels/reduce.h"

namespace unisono::collective {

/// Elements begin, ..., end - 1 of a buffer.
struct ElementRange {
  std::int64_t begin;
  std::int64_t end;

  [[nodiscard]] std::int64_t count() const { return end - begin; }

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// Returns chunk `index` of `n_chunks` of a range. All chunks have equal size except the last ones.
/// Chunks start at multiples of `granularity` elements from the beginning of the range, so that
/// ranks share no cache line.
[[nodiscard]] ElementRange chunk_of(ElementRange range,
                                    int n_chunks,
                                    int index,
                                    std::int64_t granularity);

/// The maximal canonical subtrees of a node, which are sent successively as partial results.
struct Partials {
  int rank;  ///< The rank of the node that sends the partial results.
  std::vector<RankRange> subtrees;
};

/// An input of the combination of a chunk: elements of a local rank, or a partial result.
struct CombineInput {
  RankRange range;
  /// Rank of this node that contributes elements, or -1 for a partial result.
  int own_rank;
  /// Source of a partial result: index into `partials_from`, and index of the subtree; otherwise
  /// -1.
  int part;
  int subtree;
};

/// Work of a rank for one chunk of a buffer. The members are in the order of execution.
struct ChunkPlan {
  int chunk = 0;
  /// Partial results that the rank computes from the node's ranks, and the receiving ranks.
  std::vector<RankRange> partials = {};
  std::vector<int> partials_to = {};
  /// Partial results that the rank receives.
  std::vector<Partials> partials_from = {};
  /// Ordered inputs, and the steps that combine them to the result. Empty if another rank combines.
  std::vector<CombineInput> inputs = {};
  std::vector<kernels::ReduceStep> steps = {};
  /// Ranks of other nodes to which this rank sends the result, or the rank from which this rank
  /// receives the result (-1 without such a rank). In either case this rank writes the result to
  /// the receiving ranks of this node.
  std::vector<int> result_to = {};
  int result_from = -1;

  /// Returns true if this rank computes the result of the chunk.
  [[nodiscard]] bool combines() const { return !inputs.empty(); }
};

/// The ranks that receive the result of a reduction.
struct Receivers {
  enum class Kind : std::uint8_t {
    kAll,   ///< Every rank receives every chunk: all_reduce.
    kRoot,  ///< One rank receives every chunk: reduce.
    kOwner  ///< Rank r receives chunk r: reduce_scatter.
  };

  Kind kind = Kind::kAll;
  int root = 0;  ///< Receiving rank of kRoot.

  /// Returns true if `rank` receives chunk `chunk`.
  [[nodiscard]] bool include(int rank, int chunk) const;
};

/// The work of one rank in a reduction. A pure value; may be computed on any thread.
struct ReducePlan {
  Receivers receivers;
  int n_chunks;
  std::vector<ChunkPlan> chunks;  ///< Chunks on which this rank works, in ascending order.
};

/// Returns the schedule with the least traffic: each rank owns one chunk. On every other node the
/// deputy for that chunk combines the contributions of the node and sends the partial results to
/// the owner. If a rank of the deputy's node receives the result, the owner sends the result back
/// and the deputy distributes it. With a single node no message is sent.
///
/// For all ranks, 2 (K - 1) / K of the buffer leaves each of K nodes of equal, aligned size: the
/// bandwidth lower bound of an all-reduce.
[[nodiscard]] ReducePlan two_shot_plan(const Topology& topology, Receivers receivers = {});

/// Returns the schedule with the fewest steps between nodes: a rank of each node with a receiver
/// gets the partial results of all other nodes and combines all inputs. Not for kOwner.
[[nodiscard]] ReducePlan one_shot_plan(const Topology& topology, Receivers receivers = {});

/// Returns the rank that works on `chunk` for `node`.
[[nodiscard]] int deputy_for(const Topology& topology, int node, int chunk);

/// Chunks begin, ..., end - 1 of a buffer that is divided into equal chunks.
struct ChunkRange {
  int begin;
  int end;

  [[nodiscard]] int size() const { return end - begin; }

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

/// A message of a step: `chunks` are sent to rank `to`.
struct StepSend {
  int to;
  ChunkRange chunks;
};

/// A message of a step: `chunks` are received from rank `from`.
struct StepReceive {
  int from;
  ChunkRange chunks;
  /// True if the received partial result is the left operand of the combination.
  bool is_left = false;
};

/// Concurrent transfers of one rank. The receives of a step are for disjoint chunks.
struct Step {
  std::vector<StepSend> sends = {};
  std::vector<StepReceive> receives = {};
};

/// Data that a rank sends in the combining steps.
enum class Passing : std::uint8_t {
  kCombined,  ///< The partial result combined so far.
  /// The data received in the previous step, unchanged; in the first step the rank's own elements.
  kArrived
};

/// The work of one rank in an all-reduce by steps between ranks. All ranks have the same number of
/// steps and execute each step at the same time. A pure value; may be computed on any thread.
struct StepPlan {
  int n_chunks = 1;
  Passing passing = Passing::kCombined;
  /// Steps in which received data is combined with this rank's data of the same chunks.
  std::vector<Step> combining = {};
  /// The chunks for which this rank has the result after the combining steps.
  ChunkRange finished = {0, 0};
  /// Steps in which ranks send and receive results.
  std::vector<Step> spreading = {};
};

// Plans of `rank` of `world_size` ranks. The first two evaluate the canonical tree for any number
// of ranks.

/// Binomial tree to rank 0 and back: 2 ceil(log2(N)) steps with the whole buffer. A rank sends or
/// receives at most one message in each step.
[[nodiscard]] StepPlan tree_plan(int rank, int world_size);

/// Vector halving and distance doubling, then back (Thakur, Rabenseifner and Gropp, 2005): 2
/// log2(N) steps with the traffic of a ring. If N is not a power of two, the ranks form blocks of
/// powers of two; each block performs the algorithm, then the blocks combine from the smallest to
/// the largest ("binary blocks").
[[nodiscard]] StepPlan halving_doubling_plan(int rank, int world_size);

/// The whole buffer travels once around the ring: N - 1 steps, in which a rank sends (N - 1) S
/// bytes. Each rank adds in a different order, so the bits may differ between ranks.
[[nodiscard]] StepPlan ring_plan(int rank, int world_size);

/// A reduce-scatter and an all-gather around the ring (Patarasuk and Yuan, 2009): 2 (N - 1) steps,
/// in which a rank sends 2 (N - 1) / N S bytes. The bits are equal on all ranks, but depend on the
/// element's chunk.
[[nodiscard]] StepPlan chunked_ring_plan(int rank, int world_size);

/// Rank 0 receives all buffers successively and sends the result to all ranks: 2 (N - 1) S bytes
/// pass rank 0.
[[nodiscard]] StepPlan parameter_server_plan(int rank, int world_size);

/// Returns true if step_plan() supports `algorithm`.
[[nodiscard]] bool goes_in_steps(Algorithm algorithm);

/// Returns the plan of `algorithm`. Throws Error(kInternal) unless goes_in_steps(algorithm).
[[nodiscard]] StepPlan step_plan(Algorithm algorithm, int rank, int world_size);

}  // namespace unisono::collective
