#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::transport {

/// Why a group can't go on. Set once, by whoever knows first, from any thread; every wait of the
/// group looks at it and throws it. Thread-safe.
class Failure {
 public:
  /// `wake` is called once when the failure is set: it must make the waits of its owner look again,
  /// and not block. No lock is held.
  explicit Failure(std::function<void()> wake = [] {}) : wake_(std::move(wake)) {}

  /// Keeps the first error and wakes the waiting threads. Returns false when there was one before.
  /// Takes no memory.
  bool set(const Error& error) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_set() const noexcept {
    // Pairs with the release in set(): who sees true can read the error.
    return is_set_.load(std::memory_order_acquire);
  }

  /// The error that was set; throws Error(kInternal) when there is none.
  [[nodiscard]] Error error() const UNISONO_EXCLUDES(mutex_);

  /// A call or operation of this rank ends with the error, before or after it is set.
  void note_delivered() noexcept { is_delivered_.store(true, std::memory_order_relaxed); }

  /// Whether it is set, and no call or operation of this rank has ended with it.
  [[nodiscard]] bool is_undelivered() const noexcept {
    return is_set() && !is_delivered_.load(std::memory_order_relaxed);
  }

  /// Waits for it; whether it was set by then.
  [[nodiscard]] bool wait_until_set(Deadline deadline) const UNISONO_EXCLUDES(mutex_);

  /// Throws the error if there is one.
  void throw_if_set() const {
    if (is_set()) [[unlikely]] {
      throw error();
    }
  }

 private:
  const std::function<void()> wake_;
  std::atomic<bool> is_set_ = false;
  std::atomic<bool> is_delivered_ = false;  // Relaxed: it orders nothing else.
  mutable Mutex mutex_;
  mutable Condition changed_;
  std::optional<Error> error_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::transport
