#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/diagnostics_store.h"
#include "unisono/engine/native/call_history.h"

namespace unisono::comm {

/// CallHistory in the job's store, a key for each rank; warnings go to the ranks themselves.
class StoredCallHistory final : public engine::CallHistory {
 public:
  using Warn = std::function<void(int rank, const Error& reason)>;

  /// `store` outlives it. `prefix` stands before the keys of one group. `warn` does not throw.
  StoredCallHistory(DiagnosticsStore& store, std::string prefix, int rank, Warn warn);

  void tell(std::span<const engine::CallRecord> calls) noexcept override;
  [[nodiscard]] std::vector<engine::CallRecord> ask(int rank) noexcept override;

  void warn(int rank, const Error& reason) noexcept override { warn_(rank, reason); }

 private:
  [[nodiscard]] std::string key_of(int rank) const;

  DiagnosticsStore& store_;
  std::string prefix_;
  int rank_;
  Warn warn_;
};

}  // namespace unisono::comm
