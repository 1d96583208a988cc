#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/health/diagnostics_store.h"

namespace unisono::health {

/// Why a rank gave up, as it wrote down.
struct Reason {
  int rank;  ///< In the group.
  Error error;
};

/// The reasons for which a group's ranks gave up, in the job's store. Between nodes a rank may see
/// only that another is late or gone; what that one wrote here tells why.
class FailureLog {
 public:
  /// `store` outlives it.
  FailureLog(DiagnosticsStore& store, const std::string& prefix, int rank);

  /// Writes this rank's reason down, and whether it is to read those of others. False when the
  /// store is gone.
  bool publish(const Error& error, bool will_read) noexcept;

  /// What other ranks wrote and `known` does not say yet, waiting until `deadline` for the first to
  /// write; "" when there is nothing or the store is gone.
  [[nodiscard]] std::string read_others(const std::string& known, Deadline deadline) noexcept;

  /// The first that another rank has written; nothing when there is none or the store is gone. One
  /// request while there is none.
  [[nodiscard]] std::optional<Reason> find_first() const noexcept;

  /// For the rank that serves the store, before it may end: waits up to `patience` until those that
  /// wrote a reason, and are to read, have read.
  void wait_for_readers(std::chrono::milliseconds patience) noexcept;

 private:
  // Where the reason that was written as the `number`th lies, from 1.
  [[nodiscard]] std::string key_of(std::int64_t number) const;
  void note_read(store::Store& store) const;
  // There once the rank has read, or is not to.
  [[nodiscard]] std::string read_key_of(const std::string& rank) const;

  DiagnosticsStore& store_;
  std::string key_;
  int rank_;
};

}  // namespace unisono::health
