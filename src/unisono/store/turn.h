#pragma once

#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/base/mutex.h"

namespace unisono::store {

/// Lets one caller at a time use a connection, as a lock does, but who waits gives up at its
/// deadline or when the program wants it to (base/interruption.h), and no mutex is held while the
/// connection is used.
class Turn {
 public:
  /// False when the deadline passed first.
  [[nodiscard]] bool take(Deadline deadline) {
    while (!take_undisturbed(earlier(deadline, next_interruption_check()))) {
      if (deadline.has_passed()) {
        return false;
      }
      check_interruption();
    }
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
  [[nodiscard]] bool take_undisturbed(Deadline deadline) UNISONO_EXCLUDES(mutex_) {
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

  Mutex mutex_;
  Condition returned_;
  bool is_taken_ UNISONO_GUARDED_BY(mutex_) = false;
};

/// A turn for the length of a block.
class TurnHolder {
 public:
  /// Throws Error(kTimeout), with the peer, when others had it until the deadline.
  TurnHolder(Turn& turn, Deadline deadline, const std::string& peer) : turn_(turn) {
    if (!turn_.take(deadline)) {
      throw Error(ErrorCode::kTimeout, peer + ": another thread's request took all of the time");
    }
  }

  ~TurnHolder() { turn_.give_back(); }

  TurnHolder(const TurnHolder&) = delete;
  TurnHolder& operator=(const TurnHolder&) = delete;
  TurnHolder(TurnHolder&&) = delete;
  TurnHolder& operator=(TurnHolder&&) = delete;

 private:
  Turn& turn_;
};

}  // namespace unisono::store
