#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/native/memory/peer_memory.h"
#include "unisono/engine/operation.h"
#include "unisono/health/rank_status.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/exchange.h"
#include "unisono/transport/wait_monitor.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine {

/// One operation under way on this rank: what its steps share.
struct OperationContext {
  const Operation& operation;
  const Operation& called;  ///< As the rank called it, before it was coalesced.
  const collective::Topology& topology;
  const health::RankStatus& ranks;
  shm::ControlBlock& control_block;
  tcp::Exchange exchange;
  transport::WaitMode mode;
  bool has_cores;  ///< The node has a core for each of its ranks.
  transport::WaitMonitor& wait_monitor;
  PeerMemory& peers;
  // Of the engine, so that small operations allocate nothing.
  std::vector<std::byte>& scratch;
  std::vector<kernels::ReduceInput>& inputs;
  std::vector<void*>& outputs;
  /// For what small operations note down until they end.
  std::pmr::memory_resource& memory;

  /// Shows this rank's header, waits for those of the node's ranks, and checks that all called the
  /// same.
  void enter();

  /// The same, after it has written into the header where `in` and `out` are.
  void enter_with_buffers();

  /// Where they are in this rank's arena, if they lie there.
  [[nodiscard]] shm::Placement place_in_arena() const;

  /// Enters with a header that shows `placement`.
  void enter_with(const shm::Placement& placement);

  /// The same, with up to shm::kInlineBytes that the node's ranks find in the header.
  void enter_with(std::span<const std::byte> payload);

  /// Waits until every rank of the node has called it as often as this one.
  void sync() { control_block.sync(mode, wait_monitor); }

  /// An empty message from the lowest rank of each node to those of all others, then sync().
  void meet_other_nodes();

  /// Instead of enter() and meet_other_nodes(): every rank tells every other by itself that it has
  /// come, so each knows all who have not.
  void meet_every_rank();

  /// In meet_every_rank(), or after it has thrown: the ranks that have not come.
  [[nodiscard]] std::vector<int> find_absent() const;

  [[nodiscard]] int n_local() const { return control_block.local_world_size(); }

  /// What this rank shows on its node, one rank reads.
  [[nodiscard]] bool has_one_peer() const { return n_local() == 2; }

  /// This rank's index among those of its node.
  [[nodiscard]] int self() const { return control_block.local_rank(); }

  /// The lowest rank of each other node.
  [[nodiscard]] std::vector<int> leaders_elsewhere() const;

  /// The group's rank with this index on this node.
  [[nodiscard]] int rank_at(int local_rank) const {
    return topology.local_ranks()[static_cast<std::size_t>(local_rank)];
  }

  [[nodiscard]] const shm::OperationHeader& header(int local_rank) const {
    return control_block.header(local_rank, operation.sequence);
  }

  [[nodiscard]] std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(size_of(operation.descriptor.dtype));
  }

  /// Elements of a cache line, or 1: ranks that write chunks of whole ones share none.
  [[nodiscard]] std::int64_t elements_per_line() const;

  /// Whether results had better be stored past the caches: the whole buffer does not fit in them.
  [[nodiscard]] bool is_streaming() const {
    return operation.in.n_bytes() >= (std::int64_t{8} << 20);
  }

  /// Of the reduction's partial results.
  [[nodiscard]] DType partial_type() const;

  [[nodiscard]] std::int64_t partial_bytes() const {
    return static_cast<std::int64_t>(size_of(partial_type()));
  }

  /// The operation's reduction, of these inputs to these outputs.
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
