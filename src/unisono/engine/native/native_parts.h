#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "unisono/base/config.h"
#include "unisono/base/link_costs.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_health.h"
#include "unisono/health/rank_status.h"
#include "unisono/health/status_client.h"
#include "unisono/health/work_waits.h"
#include "unisono/transport/failure.h"

namespace unisono::engine {

/// What a NativeEngine works with. The references outlive it.
struct NativeParts {
  TransportParts transports;  ///< Of its group.
  std::shared_ptr<SymmetricMemory> memory;
  transport::Failure& failure;
  SingleCopy single_copy;
  std::optional<LinkCosts> links;  ///< What they cost, if it need not be measured.
  const health::RankStatus& ranks;
  health::StatusClient& status;
  health::GroupHealth& health;
  const health::WorkWaits& work_waits;
  health::DiagnosticsStore& diagnostics;
  std::chrono::milliseconds stall;
  /// Whether waits for messages look whether buffers were written to before them.
  bool checks_buffers;
};

}  // namespace unisono::engine
