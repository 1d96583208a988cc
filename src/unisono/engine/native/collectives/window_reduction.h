#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/compress.h"
#include "unisono/kernels/reduce.h"

namespace unisono::engine {

/// Where a chunk's elements are in the memory of a window.
struct ChunkPlace {
  std::int64_t in_begin;
  std::int64_t out_begin;
  std::int64_t count;
};

/// A part of the buffers of a reduction as this rank reaches them on its node.
struct Window {
  std::vector<ChunkPlace> chunks;    ///< By chunk.
  std::vector<const std::byte*> in;  ///< By local rank.
  std::vector<std::byte*> out;       ///< By local rank; null: gets nothing here.
  bool is_streaming = false;         ///< Worth storing past the caches.
};

/// Carries a plan of collective/ out on one window.
///
/// Between two ranks, messages are posted in the order of the plan's chunks on both sides, partial
/// results before results: that order is all that matches them.
class WindowReduction {
 public:
  WindowReduction(OperationContext& context,
                  const collective::ReducePlan& plan,
                  const Window& window,
                  kernels::Compression compression = kernels::Compression::kNone)
      : context_(context), plan_(plan), window_(window), compression_(compression) {}

  void run();

 private:
  void take_scratch();
  void exchange_partials();
  // The partial result of a single rank is its contribution, which travels as it is: 16-bit floats
  // in half the bytes of a partial result of several.
  [[nodiscard]] bool is_contribution(collective::RankRange subtree) const;
  [[nodiscard]] const std::byte* contribution(int rank, const ChunkPlace& place) const;
  // As it is sent.
  [[nodiscard]] std::span<const std::byte> partial_of(collective::RankRange subtree,
                                                      const ChunkPlace& place);
  void compute_partial(collective::RankRange subtree, const ChunkPlace& place, std::byte* partial);
  void combine(const collective::ChunkPlan& chunk);
  void exchange_results();
  void deliver(const collective::ChunkPlan& chunk, std::span<const std::byte> packed);
  [[nodiscard]] std::span<std::byte> landing_of(const collective::ChunkPlan& chunk);
  [[nodiscard]] std::vector<std::byte*> outputs_of(const collective::ChunkPlan& chunk) const;

  [[nodiscard]] const ChunkPlace& place_of(const collective::ChunkPlan& chunk) const {
    return window_.chunks[static_cast<std::size_t>(chunk.chunk)];
  }

  // Elements as they go between nodes: themselves, unless they are f32 and to be compressed.
  [[nodiscard]] bool is_compressed(DType dtype) const;
  [[nodiscard]] std::span<const std::byte> pack(std::span<const std::byte> elements, DType dtype);
  [[nodiscard]] std::span<std::byte> room_for(std::span<std::byte> elements, DType dtype);
  void unpack(std::span<const std::byte> packed, std::span<std::byte> elements) const;

  OperationContext& context_;
  const collective::ReducePlan& plan_;
  const Window& window_;
  kernels::Compression compression_;
  // Of the scratch memory: partial results in the order of the plan, then a result that no rank of
  // this node gets.
  std::span<std::byte> scratch_;
  // Also of it: what is compressed.
  std::span<std::byte> packed_;
  // Partial results of other nodes for the chunk that this rank combines, in the plan's order.
  std::vector<kernels::ReduceInput> received_;
};

}  // namespace unisono::engine
