#pragma once

#include <cstdint>

#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"

namespace unisono::net {

/// A TCP port kept free for a server that starts later: bound with SO_REUSEADDR but not listening,
/// so that the kernel gives it to nobody who asks for any port, while listen_tcp() gets it by
/// number.
class PortReservation {
 public:
  /// `address` with port 0: a free one. Throws Error(kSystem) when it is in use.
  explicit PortReservation(const Address& address);

  /// The first free one of `ports`, whatever the port of `address` is; one that somebody else has
  /// reserved only where no other is left. Throws Error(kSystem) when all are in use.
  PortReservation(const Address& address, const PortRange& ports);

  [[nodiscard]] std::uint16_t port() const;

 private:
  Fd socket_;
};

}  // namespace unisono::net
