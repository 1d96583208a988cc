#pragma once

#include <cstdint>

#include "unisono/base/fd.h"

namespace unisono::launch {

/// A TCP port kept free for rank 0: bound with SO_REUSEADDR but not listening, so that the kernel
/// gives it to nobody who asks for any port, while a server that asks for it by number gets it.
class PortReservation {
 public:
  /// `port` 0: any free one. Throws Error(kSystem) when the port is in use; names who holds it.
  explicit PortReservation(std::uint16_t port);

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  Fd socket_;
  std::uint16_t port_;
};

}  // namespace unisono::launch
