#include "unisono/rendezvous/data_listener.h"

#include <fmt/format.h>

#include <optional>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/port_reservation.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/interface_choice.h"

namespace unisono::rendezvous {

Fd listen_for_data(const Config& config, const StoreSession& session) {
  std::optional<net::Address> address = net::Address::parse(session.local_ip, 0);
  UNISONO_CHECK(address.has_value(),
                fmt::format("the store was reached from \"{}\"", session.local_ip));
  if (!config.interface.empty() && !session.secret.empty()) {
    address = choose_data_interface(config.interface, net::interfaces(), *address).address;
  }
  return config.ports ? net::listen_tcp(*address, *config.ports) : net::listen_tcp(*address);
}

net::PortReservation reserve_store_port(const Config& config, int family) {
  const net::Address any = net::Address::any(family, 0);
  return config.ports ? net::PortReservation(any, *config.ports) : net::PortReservation(any);
}

}  // namespace unisono::rendezvous
