#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/algorithm.h"

namespace unisono::collective {

/// Chunks begin, ..., end - 1 of a buffer cut into equal chunks.
struct ChunkRange {
  int begin;
  int end;

  [[nodiscard]] int size() const { return end - begin; }

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

struct StepSend {
  int to;
  ChunkRange chunks;
};

struct StepReceive {
  int from;
  ChunkRange chunks;
  /// Whether what arrives is the left operand of the combination. Of partial results.
  bool is_left = false;
};

/// Transfers of one rank that are under way together. The receives of a step are for different
/// chunks, unless it has none.
struct Step {
  std::vector<StepSend> sends = {};
  std::vector<StepReceive> receives = {};
};

/// What a rank sends in the steps before the result is there.
enum class Passing : std::uint8_t {
  kCombined,  ///< What it has combined so far.
  kArrived    ///< What came in the step before, as it came; in the first step its own elements.
};

/// One rank's part in an all-reduce that goes from rank to rank step by step. All ranks have the
/// same number of steps, and reach each of them together.
struct StepPlan {
  int n_chunks = 1;
  Passing passing = Passing::kCombined;
  /// What arrives is combined with what the rank has of those chunks.
  std::vector<Step> combining = {};
  /// The chunks whose result the rank then has.
  ChunkRange finished = {0, 0};
  /// What is sent and arrives are results.
  std::vector<Step> spreading = {};
};

// Plans of `rank` of `world_size`. The first two combine in the order of the canonical tree, for
// any number of ranks.

/// Binomial tree to rank 0 and back: the whole buffer, 2 ceil(log2(N)) steps. A rank sends and
/// receives at most one message in each of them.
[[nodiscard]] StepPlan tree_plan(int rank, int world_size);

/// Vector halving and distance doubling, then back (Thakur, Rabenseifner and Gropp, 2005): as
/// little traffic as a ring, in 2 log2(N) steps. Where N is no power of two, blocks of ranks that
/// are one each do so, and then combine from the smallest to the largest ("binary blocks").
[[nodiscard]] StepPlan halving_doubling_plan(int rank, int world_size);

/// The whole buffer goes once round: N - 1 steps, in which a rank sends (N - 1) S bytes. Each rank
/// adds up in another order, so the bits may differ between ranks.
[[nodiscard]] StepPlan ring_plan(int rank, int world_size);

/// A reduce-scatter and an all-gather round the ring (Patarasuk and Yuan, 2009): 2 (N - 1) steps,
/// in which a rank sends 2 (N - 1) / N S bytes. The bits are the same on all ranks, but depend on
/// the chunk that an element is in.
[[nodiscard]] StepPlan chunked_ring_plan(int rank, int world_size);

/// Rank 0 takes all buffers one after the other and sends the result to all: 2 (N - 1) S bytes
/// pass it.
[[nodiscard]] StepPlan parameter_server_plan(int rank, int world_size);

/// Whether `algorithm` is one of these.
[[nodiscard]] bool goes_in_steps(Algorithm algorithm);

/// The one that `algorithm` names.
[[nodiscard]] StepPlan step_plan(Algorithm algorithm, int rank, int world_size);

}  // namespace unisono::collective
