#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/engine/operation.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/peer_table.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::engine {

/// Words the errors and reports about an operation's wait.
class OperationReporter final : public transport::WaitObserver {
 public:
  /// `calls` are this rank's last ones, with `operation`. The references outlive it.
  OperationReporter(const Operation& operation,
                    const NativeParts& parts,
                    const tcp::PeerTable<tcp::Connection>& connections,
                    std::span<const health::CallRecord> calls)
      : operation_(operation),
        parts_(parts),
        connections_(connections),
        id_{.group = parts.transports.group, .sequence = operation.sequence},
        calls_(calls) {}

  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override;
  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override;

  void listen() const override { parts_.health.listen(); }

  void look_into(std::span<const int> late_ranks) const override;
  void show(Deadline::Clock::time_point since, std::span<const int> late_ranks) const override;

  void hide() const noexcept override { parts_.health.hide_wait(id_); }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override;

  /// With the rank, where it does not say that yet, and the operation that it ends.
  [[nodiscard]] Error complete(const Error& error) const;

 private:
  [[nodiscard]] Error mismatch(int rank, const health::CallRecord& call) const;
  [[nodiscard]] std::string describe_operation() const;

  const Operation& operation_;
  const NativeParts& parts_;
  const tcp::PeerTable<tcp::Connection>& connections_;
  const health::WaitId id_;
  std::span<const health::CallRecord> calls_;
};

}  // namespace unisono::engine
