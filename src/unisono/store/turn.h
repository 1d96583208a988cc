#pragma once

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono::store {

/// Lets one caller at a time use a connection, as a lock does, but who waits gives up at its
/// deadline, and no mutex is held while the connection is used.
class Turn {
 public:
  /// False when the deadline passed first.
  [[nodiscard]] bool take(Deadline deadline) {
    const MutexLock lock(mutex_);
    while (is_taken_) {
      if (deadline.is_never()) {
        returned_.wait(mutex_);
      } else if (!returned_.wait_until(mutex_, deadline.time()) && is_taken_) {
        return false;
      }
    }
    is_taken_ = true;
    return true;
  }

  void give_back() {
    {
      const MutexLock lock(mutex_);
      is_taken_ = false;
    }
    returned_.notify_one();
  }

 private:
  Mutex mutex_;
  Condition returned_;
  bool is_taken_ UNISONO_GUARDED_BY(mutex_) = false;
};

/// Gives a turn back that was taken.
class TurnGuard {
 public:
  explicit TurnGuard(Turn& turn) : turn_(turn) {}

  ~TurnGuard() { turn_.give_back(); }

  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;
  TurnGuard(TurnGuard&&) = delete;
  TurnGuard& operator=(TurnGuard&&) = delete;

 private:
  Turn& turn_;
};

}  // namespace unisono::store
