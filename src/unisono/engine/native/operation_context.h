#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/shared_memory.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/remote/exchange.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/wait.h"

namespace unisono::engine {

/// Returns the duration of `action` in seconds.
template <class Action>
[[nodiscard]] double seconds_of(Action action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// State of an operation in progress on this rank, shared by the steps of the operation. Lives on
/// the stack of the executing thread; used only by that thread.
struct OperationContext {
  const Operation& operation;
  const Operation& called;  ///< The operation before it was coalesced.
  const collective::Topology& topology;
  const GroupContext& group;
  shm::ControlBlock& control_block;
  tcp::Exchange exchange;
  transport::WaitMode mode;
  bool has_cores;  ///< The node has a core for each of its ranks.
  transport::WaitMonitor& wait_monitor;
  PeerMemory& peers;
  // The engine's buffers, reused so that small operations allocate no memory.
  std::vector<std::byte>& scratch;
  std::vector<kernels::ReduceInput>& inputs;
  std::vector<void*>& outputs;
  /// Memory for bookkeeping, released at the end of the operation.
  std::pmr::memory_resource& memory;

  /// Publishes this rank's header, waits for the headers of the node's ranks, and throws the
  /// mismatch error unless all ranks have called the same operation.
  void enter();

  /// Like enter(). The header also locates `in` and `out`.
  void enter_with_buffers();

  /// Returns the offsets of `in` and `out` in this rank's arena; -1 for a buffer outside the arena.
  [[nodiscard]] shm::SlotPlacement place_in_arena() const;

  /// Like enter(), with `placement` in the header.
  void enter_with(const shm::SlotPlacement& placement);

  /// Like enter(), with up to shm::kInlineBytes of payload in the header for the node's ranks.
  void enter_with(std::span<const std::byte> payload);

  /// Waits until every rank of the node has called sync() as often as this rank.
  void sync() { control_block.sync(mode, wait_monitor); }

  /// Exchanges empty messages between the lowest ranks of all nodes, then calls sync().
  void meet_other_nodes();

  /// Replaces enter() and meet_other_nodes(). Every rank sends its arrival to every other rank, so
  /// that each rank can list all absent ranks.
  void meet_every_rank();

  /// Returns the ranks that have not arrived. Valid during meet_every_rank(), and after it has
  /// thrown.
  [[nodiscard]] std::vector<int> find_absent() const;

  /// Number of ranks on this node.
  [[nodiscard]] int n_local() const { return control_block.local_world_size(); }

  /// Returns whether the node has two ranks, so that a single peer reads the data that this rank
  /// publishes.
  [[nodiscard]] bool has_one_peer() const { return n_local() == 2; }

  /// This rank's index among the ranks of its node.
  [[nodiscard]] int self() const { return control_block.local_rank(); }

  /// Returns the lowest rank of each other node.
  [[nodiscard]] std::vector<int> leaders_elsewhere() const;

  /// Returns the group's rank with this index on this node.
  [[nodiscard]] int rank_at(int local_rank) const {
    return topology.local_ranks()[static_cast<std::size_t>(local_rank)];
  }

  /// The header of a rank of this node for this operation. Valid after enter().
  [[nodiscard]] const shm::OperationHeader& header(int local_rank) const {
    return control_block.header(local_rank, operation.sequence);
  }

  [[nodiscard]] std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(size_of(operation.descriptor.dtype));
  }

  /// Returns the number of elements in a cache line, at least 1. Ranks that write chunks of whole
  /// lines share no line.
  [[nodiscard]] std::int64_t elements_per_line() const;

  /// Returns whether results should bypass the caches, because the whole buffer does not fit into
  /// them.
  [[nodiscard]] bool is_streaming() const {
    return operation.in.n_bytes() >= (std::int64_t{8} << 20);
  }

  /// Returns the type of the reduction's partial results.
  [[nodiscard]] DType partial_type() const;

  [[nodiscard]] std::int64_t partial_bytes() const {
    return static_cast<std::int64_t>(size_of(partial_type()));
  }

  /// Returns the task that applies the operation's reduction to these inputs and outputs.
  [[nodiscard]] kernels::ReduceTask reduce_task(std::span<const kernels::ReduceInput> task_inputs,
                                                kernels::ReduceSteps steps,
                                                std::span<void* const> task_outputs) const {
    return {.dtype = operation.descriptor.dtype,
            .kind = operation.descriptor.reduce,
            .inputs = task_inputs,
            .steps = steps,
            .outputs = task_outputs,
            .divisor = topology.world_size(),
            .factor = operation.factor,
            .user = operation.user.get()};
  }

  /// Number of elements in the descriptor.
  [[nodiscard]] std::int64_t count() const { return operation.descriptor.count; }

  [[nodiscard]] const std::byte* in_bytes() const {
    return static_cast<const std::byte*>(operation.in.data);
  }

  [[nodiscard]] std::byte* out_bytes() const { return static_cast<std::byte*>(operation.out.data); }

 private:
  void check_headers();
  [[nodiscard]] Error mismatch();
  [[nodiscard]] bool share_counts();
  [[nodiscard]] std::vector<std::int64_t> shared_counts(int local_rank) const;
};

}  // namespace unisono::engine
