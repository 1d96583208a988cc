#pragma once

#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"

namespace unisono::store {

/// Lets one caller at a time use a connection, as a lock does, but who waits gives up at its
/// deadline or when the program wants it to (base/thread.h), and no mutex is held while the
/// connection is used.
class TimedMutex {
 public:
  /// Returns false if the deadline passed first.
  [[nodiscard]] bool try_lock_until(Deadline deadline) {
    while (!lock_undisturbed(earlier(deadline, next_interruption_check()))) {
      if (deadline.has_passed()) {
        return false;
      }
      check_interruption();
    }
    return true;
  }

  void unlock() {
    {
      const MutexLock lock(mutex_);
      is_locked_ = false;
    }
    unlocked_.notify_one();
  }

 private:
  [[nodiscard]] bool lock_undisturbed(Deadline deadline) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (is_locked_) {
      if (deadline.is_never()) {
        unlocked_.wait(mutex_);
      } else if (!unlocked_.wait_until(mutex_, deadline.time()) && is_locked_) {
        return false;
      }
    }
    is_locked_ = true;
    return true;
  }

  Mutex mutex_;
  Condition unlocked_;
  bool is_locked_ UNISONO_GUARDED_BY(mutex_) = false;
};

/// Locks a TimedMutex for the duration of a block.
class TimedLock {
 public:
  /// Throws Error(kTimeout), with `peer` in the message, if the mutex was not free before the
  /// deadline.
  TimedLock(TimedMutex& mutex, Deadline deadline, const std::string& peer) : mutex_(mutex) {
    if (!mutex_.try_lock_until(deadline)) {
      throw Error(ErrorCode::kTimeout, peer + ": another thread's request took all of the time");
    }
  }

  ~TimedLock() { mutex_.unlock(); }

  TimedLock(const TimedLock&) = delete;
  TimedLock& operator=(const TimedLock&) = delete;
  TimedLock(TimedLock&&) = delete;
  TimedLock& operator=(TimedLock&&) = delete;

 private:
  TimedMutex& mutex_;
};

}  // namespace unisono::store
