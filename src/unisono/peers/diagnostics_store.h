#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/store/store.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

namespace unisono::peers {

/// The reason of a rank's failure, as written to the store.
struct Reason {
  int rank;  ///< Rank in the group.
  Error error;
};

/// Access to the job's store besides the rank's existing connection.
struct StoreAccess {
  /// Opens another connection, with the given time limit for each request. Throws Error.
  std::function<std::shared_ptr<store::Store>(std::chrono::milliseconds)> connect = {};
  /// Served by the process of rank 0, which is not this process.
  bool is_served_by_rank_0 = false;
};

/// Exchanges failures and long waits between a group's ranks through the job's store. Between nodes
/// a rank may detect only that another rank is late or gone, and ranks that called different
/// operations may each wait for data that the other never sends.
///
/// Owned by the group's state. Uses a second connection to the store, opened at the first use and
/// abandoned at the first error; reads then return no data. Each request takes at most a second.
/// Thread-safe.
class DiagnosticsStore {
 public:
  /// `prefix` is the common prefix of the keys of the group, in which this process is `rank`.
  DiagnosticsStore(StoreAccess access, std::string prefix, int rank);

  /// Writes the reason of this rank's failure, and whether this rank will read the reasons of
  /// others. Returns false if the store is gone.
  bool publish(const Error& reason, bool will_read) noexcept;

  /// Returns the reasons of other ranks that `known` does not contain; "" if there are no such
  /// reasons. Waits until `deadline` for the first reason.
  [[nodiscard]] std::string read_others(const std::string& known, Deadline deadline) noexcept;

  /// Returns the first reason of another rank. Makes a single request if there is no reason.
  [[nodiscard]] std::optional<Reason> find_first() noexcept;

  /// Called by the rank that serves the store before it ends: waits up to `patience` until the
  /// ranks that wrote a reason and will read have read.
  void wait_for_readers(std::chrono::milliseconds patience) noexcept;

  /// Publishes the last calls of this rank.
  void tell_calls(std::span<const transport::CallRecord> calls) noexcept;

  /// Returns the last calls that `rank` has published; empty if the rank has not waited.
  [[nodiscard]] std::vector<transport::CallRecord> ask_calls(int rank) noexcept;

  /// Returns an error that blames another rank of the job's `roster`, extended by the loss of rank
  /// 0 if rank 0 served the store and the store is gone.
  [[nodiscard]] Error with_lost_host(const Error& error, const transport::RankTable& roster);

  /// Abandons the store. Later calls have no store.
  void give_up() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  // Returns null if the store can't be reached.
  [[nodiscard]] std::shared_ptr<store::Store> try_open() noexcept UNISONO_EXCLUDES(mutex_);
  // Calls `action` with the store. Returns false without a store, or if `action` throws.
  template <class Action>
  bool use(const Action& action) noexcept UNISONO_EXCLUDES(mutex_);

  // Returns the key of reason `number`, from 1.
  [[nodiscard]] std::string reason_key(std::int64_t number) const;
  // Returns the key that exists once the rank has read, or if it will not read.
  [[nodiscard]] std::string read_key(int rank) const;
  [[nodiscard]] std::string calls_key(int rank) const;

  StoreAccess access_;
  std::string prefix_;
  int rank_;
  Mutex mutex_;
  bool has_opened_ UNISONO_GUARDED_BY(mutex_) = false;
  std::shared_ptr<store::Store> store_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::peers
