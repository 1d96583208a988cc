#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/config.h"
#include "unisono/base/link_costs.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/call_history.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/coalescing.h"
#include "unisono/engine/native/collectives/reduce_plans.h"
#include "unisono/engine/native/memory/peer_memory.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/process_memory.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::engine {

/// What a NativeEngine works with. The references outlive it.
struct NativeParts {
  std::uint32_t group;  ///< Its number, the same on all its ranks.
  const collective::Topology& topology;
  shm::ControlBlock& control_block;
  tcp::Mesh& mesh;
  std::shared_ptr<SymmetricMemory> memory;
  const transport::Failure& failure;
  /// Of the node's ranks, by local rank.
  std::vector<shm::ProcessMemory> processes;
  bool has_cores;  ///< The node has a core for each of its ranks.
  SingleCopy single_copy;
  std::optional<LinkCosts> links;  ///< What they cost, if it need not be measured.
  const RankStatus& ranks;
  CallHistory& call_history;
  /// Sets `failure` if another rank is known to have given up. For a rank that waits.
  std::function<void()> listen;
  std::chrono::milliseconds stall;
};

/// Shared memory inside the node, tcp between nodes.
class NativeEngine final : public Engine {
 public:
  explicit NativeEngine(NativeParts parts);

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override;
  void supervise(const Operation& operation,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation& supervised) override;
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override;
  void check(const Operation& operation) const override;

  [[nodiscard]] Algorithm last_algorithm() const noexcept override {
    return last_algorithm_.load(std::memory_order_relaxed);
  }

  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

 private:
  // `supervised` is null where this engine does it itself.
  void pack_and_carry_out(const Operation& operation,
                          TimeLimit limit,
                          Caller caller,
                          SupervisedOperation* supervised);
  // `called` is what the rank asked for, of which `operation` may be the coalesced form.
  void carry_out(const Operation& operation,
                 const Operation& called,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation* supervised);
  void run(OperationContext& context);
  void reduce(OperationContext& context);
  void remember(const Operation& operation);
  void adopt_delivered() noexcept;
  void report_unheard(std::span<tcp::Connection* const> connections) const noexcept;

  NativeParts parts_;
  ReducePlans plans_;
  AlgorithmChoice choice_;
  // Whoever asks learns of one operation or the next: nothing else depends on it.
  std::atomic<Algorithm> last_algorithm_ = Algorithm::kAuto;
  PeerMemory peers_;
  shm::WaitMode user_mode_;
  shm::WaitMode progress_mode_;
  Coalescing coalescing_;
  std::vector<std::byte> scratch_;
  std::vector<kernels::ReduceInput> inputs_;
  std::vector<void*> outputs_;
  // The last calls, oldest first; kept where there are several nodes.
  std::vector<CallRecord> calls_;
  bool has_aborted_ = false;
};

}  // namespace unisono::engine
