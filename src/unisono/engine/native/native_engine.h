#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/engine/native/shared_memory.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// Executes a group's operations and messages: shared memory inside the node, tcp between nodes.
///
/// Made by NativeEngines::make(); the references in NativeParts must outlive the engine. Threads
/// and errors as in GroupEngine.
class NativeEngine final : public GroupEngine {
 public:
  explicit NativeEngine(NativeParts parts);

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override;

  [[nodiscard]] const std::string& prefix() const override { return parts_.group.prefix; }

  void supervise(const Operation& operation,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation& supervised) override;
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override;
  void check(const Operation& operation) const override;
  [[nodiscard]] std::optional<Error> check_peers() override;

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

  void reject(int socket, const Error& reason) const noexcept override {
    transports_.reject(socket, reason);
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

  [[nodiscard]] std::optional<transport::Stall> find_receive(const transport::WaitId& id) override {
    return messages_.find_receive(id);
  }

  [[nodiscard]] std::optional<transport::Stall> find_receive_of(std::uint64_t thread) override {
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

  [[nodiscard]] transport::ConnectedPeers close() override { return transports_.close(); }

  void leave_memory() override { transports_.leave(); }

 private:
  // `supervised` is null if this engine executes the operation itself.
  void carry_out(const Operation& called,
                 TimeLimit limit,
                 Caller caller,
                 SupervisedOperation* supervised);
  void run(OperationContext& context);
  void reduce(OperationContext& context);
  void remember(const Operation& operation);

  NativeParts parts_;
  const collective::Topology& topology_;
  bool has_cores_;  // The node has a core for each of its ranks.
  GroupTransports transports_;
  ReducePlans plans_;
  AlgorithmChoice choice_;
  // Relaxed accesses suffice: a reader gets the algorithm of either of two consecutive operations.
  std::atomic<Algorithm> last_algorithm_ = Algorithm::kAuto;
  PeerMemory peers_;
  Coalescing coalescing_;
  std::vector<std::byte> scratch_;
  std::vector<kernels::ReduceInput> inputs_;
  std::vector<void*> outputs_;
  // The last calls, oldest first; empty in a group of a single node.
  std::vector<transport::CallRecord> calls_;
  PointToPointProgress messages_;
};

}  // namespace unisono::engine
