#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/coalescing.h"
#include "unisono/engine/native/collectives/reduce_plans.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/peer_memory.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/health/call_history.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/connection.h"

namespace unisono::engine {

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
  [[nodiscard]] std::optional<Error> look_at_ranks() override;

  [[nodiscard]] Algorithm last_algorithm() const noexcept override {
    return last_algorithm_.load(std::memory_order_relaxed);
  }

  int pass_message(const MessageCall& call) override { return messages_.pass(call); }

  void begin_messages(std::span<const MessageCall> calls) override { messages_.begin(calls); }

  /// Of operations only: messages() has its own end.
  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

  /// How the group's ranks reach each other.
  [[nodiscard]] GroupTransports& transports() { return transports_; }

  /// The messages under way.
  [[nodiscard]] PointToPointProgress& messages() { return messages_; }

 private:
  // `supervised` is null where this engine does it itself.
  void carry_out(const Operation& called,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation* supervised);
  void run(OperationContext& context);
  void reduce(OperationContext& context);
  void remember(const Operation& operation);
  void report_unheard() noexcept;

  NativeParts parts_;
  const collective::Topology& topology_;
  bool has_cores_;  // For each of the node's ranks.
  GroupTransports transports_;
  ReducePlans plans_;
  AlgorithmChoice choice_;
  // Whoever asks learns of one operation or the next: nothing else depends on it.
  std::atomic<Algorithm> last_algorithm_ = Algorithm::kAuto;
  PeerMemory peers_;
  Coalescing coalescing_;
  std::vector<std::byte> scratch_;
  std::vector<kernels::ReduceInput> inputs_;
  std::vector<void*> outputs_;
  // The last calls, oldest first; kept where there are several nodes.
  std::vector<health::CallRecord> calls_;
  PointToPointProgress messages_;
};

}  // namespace unisono::engine
