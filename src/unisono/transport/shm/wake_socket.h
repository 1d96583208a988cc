#pragma once

#include <string>

#include "unisono/base/fd.h"

namespace unisono::shm {

/// Wakes a rank that sleeps in poll(2), from other processes of its node: an abstract Unix datagram
/// socket. What comes there says nothing, so a stranger can wake a rank and no more.
class WakeSocket {
 public:
  /// Listens under `name`. Throws Error(kSystem).
  explicit WakeSocket(const std::string& name);

  /// Becomes readable when somebody rang.
  [[nodiscard]] int fd() const { return socket_.get(); }

  /// Forgets the rings so far.
  void clear() const noexcept;

  /// Rings at the rank that listens under `name`.
  void ring(const std::string& name) const noexcept;

 private:
  Fd socket_;
};

}  // namespace unisono::shm
