#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/operation.h"
#include "unisono/health/call_history.h"
#include "unisono/health/group_health.h"
#include "unisono/health/rank_status.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/peer_table.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::engine {

/// What an OperationReporter asks. The references outlive it.
struct ReporterParts {
  std::uint32_t group;
  const collective::Topology& topology;
  const tcp::PeerTable<tcp::Connection>& connections;
  const health::RankStatus& ranks;
  health::GroupHealth& health;
  health::CallHistory& call_history;
};

/// Says who waits for whom in which operation.
class OperationReporter final : public transport::WaitObserver {
 public:
  /// `calls` are this rank's last ones, with `operation`.
  OperationReporter(const Operation& operation,
                    const ReporterParts& parts,
                    std::span<const health::CallRecord> calls)
      : operation_(operation),
        parts_(parts),
        id_{.group = parts.group, .sequence = operation.sequence},
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
  const ReporterParts parts_;
  const health::WaitId id_;
  std::span<const health::CallRecord> calls_;
};

}  // namespace unisono::engine
