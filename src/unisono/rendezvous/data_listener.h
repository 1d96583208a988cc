#pragma once

#include "unisono/base/config.h"
#include "unisono/base/fd.h"
#include "unisono/net/port_reservation.h"
#include "unisono/rendezvous/connect_store.h"

namespace unisono::rendezvous {

/// Where ranks of other nodes connect to this one: at the address and in the ports that the
/// settings want. A job without a secret stays on loopback.
///
/// Throws Error: kInvalidArgument when there is no such interface, kSystem when no port is free.
[[nodiscard]] Fd listen_for_data(const Config& config, const StoreSession& session);

/// Keeps a port on all addresses of the family, AF_INET or AF_INET6, for a store that this process
/// may have to serve; in the same ports.
///
/// Throws Error(kSystem) when no port is free.
[[nodiscard]] net::PortReservation reserve_store_port(const Config& config, int family);

}  // namespace unisono::rendezvous
