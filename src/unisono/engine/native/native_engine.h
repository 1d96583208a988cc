#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/coalescing.h"
#include "unisono/engine/native/collectives/reduce_plans.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/peer_memory.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_id.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// Shared memory inside the node, tcp between nodes.
class NativeEngine final : public GroupEngine {
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

  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

  void wake() const noexcept override { transports_.wake(); }

  void deliver(int rank, std::string_view purpose, Fd socket) override {
    transports_.deliver(rank, purpose, std::move(socket));
  }

  void turn_away(int socket, const Error& reason) const noexcept override {
    transports_.turn_away(socket, reason);
  }

  [[nodiscard]] std::vector<RankTraffic> traffic() const override { return transports_.traffic(); }

  [[nodiscard]] transport::RankProgress progress_of(int rank) const override {
    return transports_.progress_of(rank);
  }

  [[nodiscard]] bool is_leaving(int rank) const override { return transports_.is_leaving(rank); }

  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const override {
    return transports_.own_progress();
  }

  void note_refused(std::uint64_t sequence, std::string_view text) override {
    transports_.note_refused(sequence, text);
  }

  void on_failed_messages(std::function<void()> tell) override {
    messages_.on_failure(std::move(tell));
  }

  void listen_for_messages() noexcept override { messages_.listen(); }

  [[nodiscard]] std::optional<health::RankWait> find_receive(const health::WaitId& id) override {
    return messages_.find_receive(id);
  }

  [[nodiscard]] std::optional<health::RankWait> find_receive_of(std::uint64_t thread) override {
    return messages_.find_receive_of(thread);
  }

  [[nodiscard]] std::uint64_t n_sent(int rank) override { return messages_.n_sent(rank); }

  [[nodiscard]] bool drain_messages(Deadline deadline) override {
    return messages_.drain(deadline);
  }

  [[nodiscard]] std::vector<int> find_debtors() override { return messages_.find_debtors(); }

  void await_credit(Deadline deadline) override { messages_.await_credit(deadline); }

  [[nodiscard]] std::uint64_t find_doubtful_operation() override;

  void finish_messages() override { messages_.finish(); }

  void abort_messages(const Error& reason) noexcept override { messages_.abort(reason); }

  void leave_messages() noexcept override { messages_.leave(); }

  void announce_leave() override { transports_.announce_leave(); }

  [[nodiscard]] health::MetRanks close() override { return transports_.close(); }

  void leave_memory() override { transports_.leave(); }

 private:
  // `supervised` is null where this engine does it itself.
  void carry_out(const Operation& called,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation* supervised);
  void run(OperationContext& context);
  void reduce(OperationContext& context);
  void remember(const Operation& operation);

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
