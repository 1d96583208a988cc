#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"

namespace unisono::engine {

/// Positions of a chunk's elements in the memory of a window, in elements.
struct ChunkPlace {
  std::int64_t in_begin;
  std::int64_t out_begin;
  std::int64_t count;
};

/// A part of a reduction's buffers as this rank maps them on the node.
struct Window {
  std::vector<ChunkPlace> chunks;    ///< By chunk.
  std::vector<const std::byte*> in;  ///< By local rank.
  std::vector<std::byte*> out;       ///< By local rank; null for a rank that receives no result.
  bool is_streaming = false;         ///< The results should bypass the caches.
};

/// Executes a plan of collective/ on a window. Lives on the stack of an operation.
///
/// Between two ranks, both sides post messages in the order of the plan's chunks, partial results
/// before results: this order alone matches sends and receives.
class WindowReduction {
 public:
  WindowReduction(OperationContext& context,
                  const collective::ReducePlan& plan,
                  const Window& window)
      : context_(context), plan_(plan), window_(window) {}

  void run();

 private:
  void take_scratch();
  void exchange_partials();
  // The partial result of a single rank is the rank's contribution, which travels unchanged: 16-bit
  // floats take half the bytes of a partial result of several ranks.
  [[nodiscard]] bool is_contribution(collective::RankRange subtree) const;
  [[nodiscard]] const std::byte* contribution(int rank, const ChunkPlace& place) const;
  // Returns the bytes to send.
  [[nodiscard]] std::span<const std::byte> partial_of(collective::RankRange subtree,
                                                      const ChunkPlace& place);
  void compute_partial(collective::RankRange subtree, const ChunkPlace& place, std::byte* partial);
  void combine(const collective::ChunkPlan& chunk);
  void exchange_results();
  void deliver(const collective::ChunkPlan& chunk);
  [[nodiscard]] std::span<std::byte> landing_of(const collective::ChunkPlan& chunk);
  [[nodiscard]] std::vector<std::byte*> outputs_of(const collective::ChunkPlan& chunk) const;

  [[nodiscard]] const ChunkPlace& place_of(const collective::ChunkPlan& chunk) const {
    return window_.chunks[static_cast<std::size_t>(chunk.chunk)];
  }

  OperationContext& context_;
  const collective::ReducePlan& plan_;
  const Window& window_;
  // The unused rest of the scratch memory, which holds partial results in the order of the plan,
  // then a result that no rank of this node gets.
  std::span<std::byte> scratch_;
  // Partial results of other nodes for the chunk that this rank combines, in the plan's order.
  std::vector<kernels::ReduceInput> received_;
};

// Divide the buffers of a reduction into windows, and locate the windows: in the arenas, or in two
// alternating staging buffers.

/// Windows of all_reduce and reduce: consecutive segments, each divided into equal chunks.
class VectorWindows {
 public:
  VectorWindows(const OperationContext& context,
                const collective::ReducePlan& plan,
                std::int64_t segment_elements)
      : context_(context), plan_(plan), segment_elements_(segment_elements) {}

  /// Returns the number of windows, at least 1.
  [[nodiscard]] std::int64_t n_windows() const;

  [[nodiscard]] Window symmetric(std::int64_t index) const;

  [[nodiscard]] Window staged(std::int64_t index) const;

  /// Copies this rank's contribution to a window, as far as peers read it, into this rank's staging
  /// buffer.
  void copy_in(std::int64_t index) const;

  /// Copies the results that other ranks of the node left for this rank out of its staging buffer.
  /// Call before copy_in() reuses the buffer.
  void copy_out(std::int64_t index) const;

  /// Called after the reduction of a staged window: hands the cache lines that only this rank has
  /// read back to their owner. A no-op here, because this rank has written to the lines.
  void hand_back(std::int64_t /*index*/) const {}

 private:
  [[nodiscard]] collective::ElementRange range(std::int64_t index) const;
  [[nodiscard]] std::vector<ChunkPlace> chunks(std::int64_t index) const;
  [[nodiscard]] bool is_receiver(int local_rank) const;

  // Calls `copy(staging, offset, n_bytes)` for each chunk that another rank of the node combines:
  // the address in the staging buffer and the offset in this rank's own buffers.
  template <class Copy>
  void for_chunks_of_peers(std::int64_t index, Copy copy) const;

  const OperationContext& context_;
  const collective::ReducePlan& plan_;
  std::int64_t segment_elements_;
};

/// Windows of reduce_scatter, with the interface of VectorWindows. Each rank's block is a chunk; a
/// window has a share of every block.
class BlockWindows {
 public:
  BlockWindows(const OperationContext& context,
               const collective::ReducePlan& plan,
               std::int64_t share_elements)
      : context_(context), plan_(plan), share_elements_(share_elements) {}

  [[nodiscard]] std::int64_t n_windows() const;
  [[nodiscard]] Window symmetric(std::int64_t index) const;
  [[nodiscard]] Window staged(std::int64_t index) const;
  void copy_in(std::int64_t index) const;

  void copy_out(std::int64_t /*index*/) const {}

  /// Hands the cache lines of this rank's block in the peers' staging buffers back to the peers.
  void hand_back(std::int64_t index) const;

 private:
  [[nodiscard]] std::int64_t n_elements(int block, std::int64_t index) const;

  const OperationContext& context_;
  const collective::ReducePlan& plan_;
  std::int64_t share_elements_;
};

}  // namespace unisono::engine
