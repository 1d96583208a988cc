#pragma once

#include <cstdint>
#include <vector>

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/window_reduction.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

// How the buffers of a reduction are cut into windows, and how those are reached: where they lie in
// the arenas, or in staging buffers, of which two are used in turn.

/// all_reduce and reduce: consecutive segments, each cut into equal chunks.
class VectorWindows {
 public:
  VectorWindows(const OperationContext& context,
                const collective::ReducePlan& plan,
                std::int64_t segment_elements)
      : context_(context), plan_(plan), segment_elements_(segment_elements) {}

  /// At least one.
  [[nodiscard]] std::int64_t n_windows() const;

  [[nodiscard]] Window symmetric(std::int64_t index) const;

  [[nodiscard]] Window staged(std::int64_t index) const;

  /// Puts what peers are to read of this rank's part of a window into its staging buffer.
  void copy_in(std::int64_t index) const;

  /// Takes what other ranks of the node left for this one in its staging buffer: to be called
  /// before another window is copied into it.
  void copy_out(std::int64_t index) const;

  /// After a staged window was reduced: hands what this rank alone has read back to its owner. Here
  /// it has written there.
  void hand_back(std::int64_t /*index*/) const {}

 private:
  [[nodiscard]] collective::ElementRange range(std::int64_t index) const;
  [[nodiscard]] std::vector<ChunkPlace> chunks(std::int64_t index) const;
  [[nodiscard]] bool is_receiver(int local_rank) const;

  // Calls `copy(staging, offset, n_bytes)` for each chunk that another rank of the node works on:
  // where it lies in the staging buffer, and in this rank's own buffers.
  template <class Copy>
  void for_chunks_of_peers(std::int64_t index, Copy copy) const;

  const OperationContext& context_;
  const collective::ReducePlan& plan_;
  std::int64_t segment_elements_;
};

/// reduce_scatter, by the same functions: a chunk for each rank's block; a window has a share of
/// every block.
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

  void hand_back(std::int64_t index) const;

 private:
  [[nodiscard]] std::int64_t n_elements(int block, std::int64_t index) const;

  const OperationContext& context_;
  const collective::ReducePlan& plan_;
  std::int64_t share_elements_;
};

}  // namespace unisono::engine
