#pragma once

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono::store::testing {

/// Something that happens once, for which threads of a test wait.
class Event {
 public:
  void set() {
    {
      const MutexLock lock(mutex_);
      is_set_ = true;
    }
    came_.notify_all();
  }

  /// False when the deadline passed first.
  [[nodiscard]] bool wait(Deadline deadline) {
    const MutexLock lock(mutex_);
    while (!is_set_ && came_.wait_until(mutex_, deadline.time())) {
    }
    return is_set_;
  }

 private:
  Mutex mutex_;
  Condition came_;
  bool is_set_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::store::testing
