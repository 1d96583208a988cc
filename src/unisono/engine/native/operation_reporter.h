#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/connection.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/wait.h"

namespace unisono::engine {

/// Builds the errors and reports about an operation's wait. Lives on the stack of the thread that
/// executes the operation; only that thread uses it.
class OperationReporter final : public transport::WaitObserver {
 public:
  /// `calls` are this rank's last calls, including `operation`. The references must outlive the
  /// reporter.
  OperationReporter(const Operation& operation,
                    const NativeParts& parts,
                    const tcp::PeerTable<tcp::Connection>& connections,
                    std::span<const transport::CallRecord> calls)
      : operation_(operation),
        parts_(parts),
        connections_(connections),
        id_{.group = parts.group.number, .sequence = operation.sequence},
        calls_(calls) {}

  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override;
  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override;

  void listen() const override { parts_.group.events.check_peers(); }

  void look_into(std::span<const int> late_ranks) const override;
  void show(Deadline::Clock::time_point since, std::span<const int> late_ranks) const override;

  void hide() const noexcept override { parts_.group.events.hide_wait(id_); }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override;

  /// Returns the error with the name of this rank, unless present, and the operation that it ends.
  [[nodiscard]] Error complete(const Error& error) const;

 private:
  [[nodiscard]] Error mismatch(int rank, const transport::CallRecord& call) const;
  [[nodiscard]] std::string describe_operation() const;

  const Operation& operation_;
  const NativeParts& parts_;
  const tcp::PeerTable<tcp::Connection>& connections_;
  const transport::WaitId id_;
  std::span<const transport::CallRecord> calls_;
};

/// Meets the ranks of this node, calls begin() of `supervised`, and then advance() until the
/// operation is done. Throws the errors of WaitMonitor::check().
///
/// The thread polls, because such an operation progresses only inside advance(): first in a tight
/// loop, then with sched_yield in between and, after a while and if ranks of other nodes may be
/// late, with naps of up to a millisecond.
void carry_out_supervised(SupervisedOperation& supervised,
                          OperationContext& context,
                          std::uint32_t group);

}  // namespace unisono::engine
