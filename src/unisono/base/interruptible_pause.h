#pragma once

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono {

/// Pauses of a thread that repeats something until another thread ends it.
class InterruptiblePause {
 public:
  /// Waits until `deadline`; false, at once, when end() was called.
  [[nodiscard]] bool wait_until(Deadline deadline) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!is_over_ && over_.wait_until(mutex_, deadline.time())) {
    }
    return !is_over_;
  }

  /// For good. Who returns from wait_until() then may destroy this at once.
  void end() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    is_over_ = true;
    over_.notify_one();
  }

 private:
  Mutex mutex_;
  Condition over_;
  bool is_over_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono
