#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/store.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// Why a rank gave up, as it wrote down.
struct Reason {
  int rank;  ///< In the group.
  Error error;
};

/// An operation that a rank called.
struct CallRecord {
  std::uint64_t sequence;
  transport::Descriptor descriptor;
};

/// What a group's ranks tell each other in the job's store of failures and long waits: between
/// nodes a rank may see only that another is late or gone, and ranks that called different
/// operations may each wait for something that the other never sends. By a second connection to
/// the store, opened when first needed, and given up at the first error: then there is nothing to
/// be read. Each request takes a second at most. Thread-safe.
class DiagnosticsStore {
 public:
  /// `session` outlives it. `prefix` stands before the keys of the group, in which this is `rank`.
  DiagnosticsStore(const rendezvous::StoreSession& session, const std::string& prefix, int rank);

  /// Writes down why this rank gives up, and whether it is to read the reasons of others. False
  /// when the store is gone.
  bool publish(const Error& reason, bool will_read) noexcept;

  /// What other ranks wrote and `known` does not say yet, waiting until `deadline` for the first to
  /// write; "" when there is nothing.
  [[nodiscard]] std::string read_others(const std::string& known, Deadline deadline) noexcept;

  /// The first reason that another rank has written. One request while there is none.
  [[nodiscard]] std::optional<Reason> find_first() noexcept;

  /// For the rank that serves the store, before it may end: waits up to `patience` until those that
  /// wrote a reason, and are to read, have read.
  void wait_for_readers(std::chrono::milliseconds patience) noexcept;

  /// Tells what this rank called last.
  void tell_calls(std::span<const CallRecord> calls) noexcept;

  /// What `rank` told last; empty if it has not waited.
  [[nodiscard]] std::vector<CallRecord> ask_calls(int rank) noexcept;

  /// An error that blames another rank of the job's `roster`, which may have ended because of rank
  /// 0: says so where rank 0 served the store, and that is gone.
  [[nodiscard]] Error with_lost_host(const Error& error, const rendezvous::Roster& roster);

  /// Later calls find no store.
  void give_up() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  // Null where the store can't be reached.
  [[nodiscard]] std::shared_ptr<store::Store> try_open() noexcept UNISONO_EXCLUDES(mutex_);
  // Calls `action` with the store. False where there is none, or `action` throws.
  template <class Action>
  bool use(const Action& action) noexcept UNISONO_EXCLUDES(mutex_);

  // The reason that was written as the `number`th, from 1.
  [[nodiscard]] std::string reason_key(std::int64_t number) const;
  // There once the rank has read, or is not to.
  [[nodiscard]] std::string read_key(int rank) const;
  [[nodiscard]] std::string calls_key(int rank) const;

  const rendezvous::StoreSession& session_;
  std::string prefix_;
  int rank_;
  Mutex mutex_;
  bool has_opened_ UNISONO_GUARDED_BY(mutex_) = false;
  std::shared_ptr<store::Store> store_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
