#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/comm/blocks.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

/// What a call comes to once its arguments are checked.
struct Call {
  /// Begun if it is to wait for its turn. Before the operation, as a wrong timeout throws: GCC 12
  /// destroys twice what was made in the same braces before.
  TimeLimit limit;
  engine::Operation operation;
};

/// Makes the call that directly follows one, from what that one brought.
using NextCall = std::function<Call()>;

/// The buffer for a caller that keeps its memory alive itself, as who waits for the end does: to
/// count an owner more and less takes longer than to pass a few bytes.
[[nodiscard]] inline Buffer lend(const Buffer& buffer) {
  return {
      .data = buffer.data, .count = buffer.count, .dtype = buffer.dtype, .device = buffer.device};
}

[[nodiscard]] inline Blocks lend(Blocks blocks) {
  blocks.is_lent = true;
  return blocks;
}

/// One of the buffers, for an operation to keep.
[[nodiscard]] inline Buffer kept(const Blocks& blocks, const Buffer& buffer) {
  return blocks.is_lent ? lend(buffer) : buffer;
}

// Each throws Error(kInvalidArgument) that names operation, label, argument and what is wrong.

[[nodiscard]] Call all_reduce_call(Membership& membership,
                                   const Buffer& in,
                                   const Buffer& out,
                                   const AllReduceOptions& options);
[[nodiscard]] Call reduce_call(Membership& membership,
                               const Buffer& in,
                               const Buffer& out,
                               const ReduceOptions& options);
[[nodiscard]] Call reduce_scatter_call(Membership& membership,
                                       const Blocks& in,
                                       const Buffer& out,
                                       const ReduceScatterOptions& options);
[[nodiscard]] Call all_reduce_coalesced_call(Membership& membership,
                                             std::span<const Buffer> buffers,
                                             const AllReduceOptions& options);
[[nodiscard]] Call all_gather_coalesced_call(Membership& membership,
                                             std::span<const Buffer> ins,
                                             std::span<const Buffer> outs,
                                             const AllGatherOptions& options);
[[nodiscard]] Call reduce_scatter_coalesced_call(Membership& membership,
                                                 std::span<const Buffer> ins,
                                                 std::span<const Buffer> outs,
                                                 const ReduceScatterOptions& options);
[[nodiscard]] Call broadcast_call(Membership& membership,
                                  const Buffer& buffer,
                                  const BroadcastOptions& options);
[[nodiscard]] Call all_gather_call(Membership& membership,
                                   const Buffer& in,
                                   const Blocks& out,
                                   const AllGatherOptions& options);

/// Of a gather or a scatter: `own` is what every rank passes, `blocks` what the root does.
[[nodiscard]] Call rooted_call(Membership& membership,
                               transport::OperationKind kind,
                               const Buffer& own,
                               const Blocks& blocks,
                               const RootedOptions& options);
[[nodiscard]] Call all_to_all_call(Membership& membership,
                                   const Blocks& in,
                                   const Blocks& out,
                                   const AllToAllOptions& options);

/// Of a barrier or a monitored one.
[[nodiscard]] Call barrier_call(Membership& membership,
                                transport::OperationKind kind,
                                const BarrierOptions& options);

}  // namespace unisono::comm
