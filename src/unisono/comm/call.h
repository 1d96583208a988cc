#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/options.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

/// A validated call, ready to be queued.
struct Call {
  /// Starts when the call is queued. Initialized before the operation, because an invalid timeout
  /// throws: GCC 12 destroys values twice that were made earlier in the same braces.
  TimeLimit limit;
  engine::Operation operation;
};

/// Makes the call that directly follows another call, from the results of that call.
using NextCall = std::function<Call()>;

/// Returns the buffer without its owner, for a caller that keeps the memory alive, such as a
/// blocking call. Skips reference counting, which costs more than a small message.
[[nodiscard]] inline Buffer lend(const Buffer& buffer) {
  return {.data = buffer.data,
          .count = buffer.count,
          .dtype = buffer.dtype,
          .device = buffer.device,
          .owner = nullptr,
          .mirror = buffer.mirror};
}

[[nodiscard]] inline Blocks lend(Blocks blocks) {
  blocks.is_lent = true;
  return blocks;
}

/// Returns a block as an operation keeps it: with the owner, unless the blocks are lent.
[[nodiscard]] inline Buffer kept(const Blocks& blocks, const Buffer& buffer) {
  return blocks.is_lent ? lend(buffer) : buffer;
}

// Each function throws Error(kInvalidArgument) with the operation, the label, the argument and the
// problem.

[[nodiscard]] Call all_reduce_call(GroupState& state,
                                   const Buffer& in,
                                   const Buffer& out,
                                   const AllReduceOptions& options);
[[nodiscard]] Call reduce_call(GroupState& state,
                               const Buffer& in,
                               const Buffer& out,
                               const ReduceOptions& options);
[[nodiscard]] Call reduce_scatter_call(GroupState& state,
                                       const Blocks& in,
                                       const Buffer& out,
                                       const ReduceScatterOptions& options);
/// Reduces each distinct buffer once, in place.
[[nodiscard]] Call all_reduce_coalesced_call(GroupState& state,
                                             std::span<const Buffer> buffers,
                                             const AllReduceOptions& options);
[[nodiscard]] Call all_gather_coalesced_call(GroupState& state,
                                             std::span<const Buffer> ins,
                                             std::span<const Buffer> outs,
                                             const AllGatherOptions& options);
[[nodiscard]] Call reduce_scatter_coalesced_call(GroupState& state,
                                                 std::span<const Buffer> ins,
                                                 std::span<const Buffer> outs,
                                                 const ReduceScatterOptions& options);
[[nodiscard]] Call broadcast_call(GroupState& state,
                                  const Buffer& buffer,
                                  const BroadcastOptions& options);
[[nodiscard]] Call all_gather_call(GroupState& state,
                                   const Buffer& in,
                                   const Blocks& out,
                                   const AllGatherOptions& options);

/// Makes the call of a gather or scatter. Every rank passes `own`; only the root passes `blocks`.
[[nodiscard]] Call rooted_call(GroupState& state,
                               transport::OperationKind kind,
                               const Buffer& own,
                               const Blocks& blocks,
                               const RootedOptions& options);
/// Both or neither of `in` and `out` must be a list.
[[nodiscard]] Call all_to_all_call(GroupState& state,
                                   const Blocks& in,
                                   const Blocks& out,
                                   const AllToAllOptions& options);

/// Makes the call of a barrier or a monitored barrier.
[[nodiscard]] Call barrier_call(GroupState& state,
                                transport::OperationKind kind,
                                const BarrierOptions& options);

}  // namespace unisono::comm
