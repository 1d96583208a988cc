#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_contacts.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// An operation that a rank called.
struct CallRecord {
  std::uint64_t sequence;
  transport::Descriptor descriptor;
};

/// Where ranks are in their group's operations, as they say in the job's store while they wait.
/// Between nodes ranks that called different operations may each wait for something that the other
/// never sends.
class CallHistory {
 public:
  /// `store` outlives it. `prefix` stands before the keys of one group.
  CallHistory(DiagnosticsStore& store, const std::string& prefix, const GroupContacts& contacts);

  /// Tells the others what this rank called last. Takes a second at most.
  void tell(std::span<const CallRecord> calls) noexcept;

  /// What `rank` told last; empty if it has not waited, or can't be asked. Takes a second at most.
  [[nodiscard]] std::vector<CallRecord> ask(int rank) noexcept;

  /// Tells `rank` why this rank gives up: what it asked about shows an error that `rank`, which
  /// waits for others, may not see. Takes half a second at most.
  void warn(int rank, const Error& reason) noexcept { tell_rank(contacts_, rank, reason); }

 private:
  [[nodiscard]] std::string key_of(int rank) const;

  DiagnosticsStore& store_;
  std::string key_;
  GroupContacts contacts_;
};

}  // namespace unisono::health
