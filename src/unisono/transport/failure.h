#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::transport {

/// The error for which a group cannot continue. The first error that any thread reports is kept;
/// every wait of the group checks for the failure and throws it.
///
/// Owned by the state of the group; outlives all waits of the group. Thread-safe. set() allocates
/// no memory.
class Failure {
 public:
  /// Calls `wake` once, without a lock, when the failure is set. `wake` must make all waits of the
  /// owner check the failure, and must not block.
  explicit Failure(std::function<void()> wake = [] {}) : wake_(std::move(wake)) {}

  /// Keeps the first error and wakes all waiting threads. Returns false if an error was already
  /// set. Allocates no memory.
  bool set(const Error& error) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_set() const noexcept {
    // Pairs with the release in set(): a thread that reads true can read the error.
    return is_set_.load(std::memory_order_acquire);
  }

  /// Returns the error. Throws Error(kInternal) if no failure is set.
  [[nodiscard]] Error error() const UNISONO_EXCLUDES(mutex_);

  /// Records that a call or operation of this rank ends with the error. Allowed before and after
  /// set().
  void note_delivered() noexcept { is_delivered_.store(true, std::memory_order_relaxed); }

  /// Returns true if the failure is set and no call or operation of this rank has ended with the
  /// error yet.
  [[nodiscard]] bool is_undelivered() const noexcept {
    return is_set() && !is_delivered_.load(std::memory_order_relaxed);
  }

  /// Blocks until the failure is set or the deadline passes. Returns true if it is set.
  [[nodiscard]] bool wait_until_set(Deadline deadline) const UNISONO_EXCLUDES(mutex_);

  /// Throws the error if the failure is set.
  void throw_if_set() const {
    if (is_set()) [[unlikely]] {
      throw error();
    }
  }

 private:
  const std::function<void()> wake_;
  std::atomic<bool> is_set_ = false;
  // Relaxed accesses suffice: no other data depends on it.
  std::atomic<bool> is_delivered_ = false;
  mutable Mutex mutex_;
  mutable Condition changed_;
  std::optional<Error> error_ UNISONO_GUARDED_BY(mutex_);
};

/// Returns the error that a rank reports after peer `name` aborted with `reason`: "rank 2 (pid 5 on
/// a) gave up: ...". If the peer aborted because of a third rank, the result names only that rank:
/// the message contains the original cause and rank once, however many ranks relay the error.
[[nodiscard]] Error relayed(const std::string& name, const Error& reason);

/// Returns an error of the group that also names the failed call, behind `prefix`: "[rank 0/2]
/// barrier #1: ...". A prefix or a call that already begins the message is not repeated.
[[nodiscard]] Error with_call(const std::string& prefix,
                              const std::string& call,
                              const Error& error);

/// Returns the message of the rank that had the error first. Returns `text` itself if the error was
/// not relayed.
[[nodiscard]] std::string_view root_cause(std::string_view text);

/// Returns the name of the rank that had the error first. Returns `text` itself if the error was
/// not relayed.
[[nodiscard]] std::string_view root_rank(std::string_view text);

}  // namespace unisono::transport
