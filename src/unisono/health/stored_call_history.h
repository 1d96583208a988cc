#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/health/call_history.h"
#include "unisono/health/diagnostics_store.h"

namespace unisono::health {

/// CallHistory in the job's store, a key for each rank; warnings go to the ranks themselves.
class StoredCallHistory final : public CallHistory {
 public:
  using Warn = std::function<void(int rank, const Error& reason)>;

  /// `store` outlives it. `prefix` stands before the keys of one group. `warn` does not throw.
  StoredCallHistory(DiagnosticsStore& store, std::string prefix, int rank, Warn warn);

  void tell(std::span<const CallRecord> calls) noexcept override;
  [[nodiscard]] std::vector<CallRecord> ask(int rank) noexcept override;

  void warn(int rank, const Error& reason) noexcept override { warn_(rank, reason); }

 private:
  [[nodiscard]] std::string key_of(int rank) const;

  DiagnosticsStore& store_;
  std::string prefix_;
  int rank_;
  Warn warn_;
};

}  // namespace unisono::health
