#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// An operation that a rank called.
struct CallRecord {
  std::uint64_t sequence;
  transport::Descriptor descriptor;
};

/// Where ranks are in their group's operations, as they say while they wait. Between nodes ranks
/// that called different operations may each wait for something that the other never sends.
class CallHistory {
 public:
  CallHistory() = default;
  virtual ~CallHistory() = default;
  CallHistory(const CallHistory&) = delete;
  CallHistory& operator=(const CallHistory&) = delete;
  CallHistory(CallHistory&&) = delete;
  CallHistory& operator=(CallHistory&&) = delete;

  /// Tells the others what this rank called last. Takes a second at most.
  virtual void tell(std::span<const CallRecord> calls) noexcept = 0;

  /// What `rank` told last; empty if it has not waited, or can't be asked. Takes a second at most.
  [[nodiscard]] virtual std::vector<CallRecord> ask(int rank) noexcept = 0;

  /// Tells `rank` why this rank gives up: what it asked about shows an error that `rank`, which
  /// waits for others, may not see. Takes half a second at most.
  virtual void warn(int rank, const Error& reason) noexcept = 0;
};

}  // namespace unisono::health
