#pragma once

#include "unisono/base/fd.h"

namespace unisono::net {

/// Wakes a thread that sleeps in poll(2) or epoll_wait(2). Thread-safe.
class Wakeup {
 public:
  Wakeup();

  /// Readable from wake() to clear().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void wake() const noexcept;

  /// Forgets the wake-ups so far.
  void clear() const noexcept;

 private:
  Fd fd_;
};

}  // namespace unisono::net
