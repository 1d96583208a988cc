#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/port_reservation.h"

namespace unisono::rendezvous {

/// Of this machine's interfaces, the one through which other nodes are to reach its ranks.
struct DataInterface {
  std::string name;      ///< Empty where `address` belongs to none, as behind a translation.
  net::Address address;  ///< With port 0.
};

/// `wanted` is UNISONO_INTERFACE: an interface's name, or a network that one has an address in;
/// empty: the interface that has `by_store`, the address by which this rank reached the store. Of
/// several addresses, one of `by_store`'s family.
///
/// Throws Error(kInvalidArgument) with the interfaces that there are when none fits, or when it is
/// down or has link-local addresses alone.
[[nodiscard]] DataInterface choose_data_interface(const std::string& wanted,
                                                  const std::vector<net::Interface>& all,
                                                  const net::Address& by_store);

/// The address to tell others, where no connection shows which one they can reach: of the wanted
/// interface, as above; else `by_default_route`; else of the first interface that is up, at last of
/// loopback.
[[nodiscard]] net::Address choose_own_address(const std::string& wanted,
                                              const std::vector<net::Interface>& all,
                                              const std::optional<net::Address>& by_default_route);

/// Those on which a multicast group is joined: the wanted one, as above; else all but loopback, or
/// loopback alone if there is no other with an address of the family or `stays_here`.
[[nodiscard]] std::vector<net::Interface> choose_group_interfaces(
    const std::string& wanted, const std::vector<net::Interface>& all, int family, bool stays_here);

/// Keeps a port on all addresses of the family, AF_INET or AF_INET6, for a store that this process
/// may have to serve, in the ports that the settings want.
///
/// Throws Error(kSystem) when no port is free.
[[nodiscard]] net::PortReservation reserve_store_port(const Config& config, int family);

}  // namespace unisono::rendezvous
