#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/health/call_history.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/store.h"

namespace unisono::health {

/// For StoreSession::connect_again(): what is told of failures must not make them last.
inline constexpr std::chrono::seconds kDiagnosticsStoreTimeout{1};

/// A second connection to the job's store, for what ranks tell each other of failures and long
/// waits: opened when first needed, and given up at the first error. Thread-safe.
class DiagnosticsStore {
 public:
  using Connect = std::function<std::shared_ptr<store::Store>()>;

  explicit DiagnosticsStore(Connect connect) : connect_(std::move(connect)) {}

  /// Null where the store can't be reached.
  [[nodiscard]] std::shared_ptr<store::Store> try_open() noexcept UNISONO_EXCLUDES(mutex_);

  /// After an error: later calls find no store.
  void give_up() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  Connect connect_ UNISONO_GUARDED_BY(mutex_);
  std::shared_ptr<store::Store> store_ UNISONO_GUARDED_BY(mutex_);
};

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

/// An error that blames another rank, which may have ended because of rank 0: says so where rank 0
/// served the job's store, and that is gone. `store` leads there.
[[nodiscard]] Error with_lost_host(const Error& error,
                                   const rendezvous::Roster& roster,
                                   const rendezvous::StoreSession& session,
                                   DiagnosticsStore& store);

}  // namespace unisono::health
