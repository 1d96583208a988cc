#pragma once

#include <cstdint>

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/window_reduction.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// How the buffers of a reduction are cut into windows, and how those are reached: where they lie
/// in the arenas, or in staging buffers, of which two are used in turn.
class ReductionWindows {
 public:
  ReductionWindows(OperationContext& context, const collective::ReducePlan& plan)
      : context_(context), plan_(plan) {}

  virtual ~ReductionWindows() = default;
  ReductionWindows(const ReductionWindows&) = delete;
  ReductionWindows& operator=(const ReductionWindows&) = delete;
  ReductionWindows(ReductionWindows&&) = delete;
  ReductionWindows& operator=(ReductionWindows&&) = delete;

  /// At least one.
  [[nodiscard]] virtual std::int64_t n_windows() const = 0;

  [[nodiscard]] virtual Window symmetric(std::int64_t index) const = 0;

  [[nodiscard]] virtual Window staged(std::int64_t index) const = 0;

  /// Puts what peers are to read of this rank's part of a window into its staging buffer.
  virtual void copy_in(std::int64_t index) const = 0;

  /// Takes what other ranks of the node left for this one in its staging buffer: to be called
  /// before another window is copied into it.
  virtual void copy_out(std::int64_t index) const = 0;

  /// After a staged window was reduced: hands what this rank alone has read back to its owner.
  virtual void hand_back(std::int64_t index) const = 0;

 protected:
  [[nodiscard]] const OperationContext& context() const { return context_; }

  [[nodiscard]] const collective::ReducePlan& plan() const { return plan_; }

 private:
  OperationContext& context_;
  const collective::ReducePlan& plan_;
};

/// all_reduce and reduce: consecutive segments, each cut into equal chunks.
class VectorWindows final : public ReductionWindows {
 public:
  VectorWindows(OperationContext& context,
                const collective::ReducePlan& plan,
                std::int64_t segment_elements);

  [[nodiscard]] std::int64_t n_windows() const override;
  [[nodiscard]] Window symmetric(std::int64_t index) const override;
  [[nodiscard]] Window staged(std::int64_t index) const override;
  void copy_in(std::int64_t index) const override;
  void copy_out(std::int64_t index) const override;

  // It has written there.
  void hand_back(std::int64_t /*index*/) const override {}

 private:
  [[nodiscard]] collective::ElementRange range(std::int64_t index) const;
  [[nodiscard]] std::vector<ChunkPlace> chunks(std::int64_t index) const;
  [[nodiscard]] bool is_receiver(int local_rank) const;

  // Calls `copy(staging, offset, n_bytes)` for each chunk that another rank of the node works on:
  // where it lies in the staging buffer, and in this rank's own buffers.
  template <class Copy>
  void for_chunks_of_peers(std::int64_t index, Copy copy) const;

  std::int64_t segment_elements_;
};

/// reduce_scatter: a chunk for each rank's block; a window has a share of every block.
class BlockWindows final : public ReductionWindows {
 public:
  BlockWindows(OperationContext& context,
               const collective::ReducePlan& plan,
               std::int64_t share_elements);

  [[nodiscard]] std::int64_t n_windows() const override;
  [[nodiscard]] Window symmetric(std::int64_t index) const override;
  [[nodiscard]] Window staged(std::int64_t index) const override;
  void copy_in(std::int64_t index) const override;

  void copy_out(std::int64_t /*index*/) const override {}

  void hand_back(std::int64_t index) const override;

 private:
  [[nodiscard]] std::int64_t n_elements(int block, std::int64_t index) const;

  std::int64_t share_elements_;
};

}  // namespace unisono::engine
