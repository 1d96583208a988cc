#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
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

  /// Calls `action` with the store. False where there is none, or `action` throws: then later calls
  /// find no store.
  template <class Action>
  bool use(const Action& action) noexcept UNISONO_EXCLUDES(mutex_) {
    try {
      if (const std::shared_ptr<store::Store> store = try_open()) {
        action(*store);
        return true;
      }
    } catch (const std::exception&) {
      give_up();
    }
    return false;
  }

  /// Later calls find no store.
  void give_up() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  Connect connect_ UNISONO_GUARDED_BY(mutex_);
  std::shared_ptr<store::Store> store_ UNISONO_GUARDED_BY(mutex_);
};

/// An error that blames another rank, which may have ended because of rank 0: says so where rank 0
/// served the job's store, and that is gone. `store` leads there.
[[nodiscard]] Error with_lost_host(const Error& error,
                                   const rendezvous::Roster& roster,
                                   const rendezvous::StoreSession& session,
                                   DiagnosticsStore& store);

}  // namespace unisono::health
