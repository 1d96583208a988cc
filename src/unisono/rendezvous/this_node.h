#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"

namespace unisono::rendezvous {

/// Returns the key of this node: ranks with equal keys can pass each other file descriptors over an
/// abstract Unix socket, and thus share memory.
///
/// The key is UNISONO_NODE_ID if set, otherwise made of the requirements: the boot id of the
/// kernel, the network and pid namespaces, and the user.
[[nodiscard]] std::string node_id(const base::Config& config);

/// Returns a number that identifies a process among all processes that it may meet.
[[nodiscard]] std::uint64_t random_number();

/// Returns this machine's name, for messages.
[[nodiscard]] std::string host_name();

/// The interface of this machine through which ranks of other nodes connect.
struct DataInterface {
  /// Empty if `address` belongs to no interface, e.g. behind address translation.
  std::string name;
  net::Address address;  ///< Port 0.
};

/// Chooses the interface for data connections. `wanted` is UNISONO_INTERFACE: the name of an
/// interface, or a network in which an interface has an address. If empty, the result is the
/// interface with `by_store`, the address from which this rank reached the store. Among several
/// addresses, an address of `by_store`'s family is preferred.
///
/// Throws Error(kInvalidArgument), with the list of interfaces, if no interface fits, if the
/// interface is down, or has only link-local addresses.
[[nodiscard]] DataInterface choose_data_interface(const std::string& wanted,
                                                  const std::vector<net::Interface>& all,
                                                  const net::Address& by_store);

/// Chooses the address to publish when no connection shows which address other ranks can reach. In
/// this order: an address of the wanted interface, see choose_data_interface(); `by_default_route`;
/// an address of the first interface that is up; loopback.
[[nodiscard]] net::Address choose_own_address(const std::string& wanted,
                                              const std::vector<net::Interface>& all,
                                              const std::optional<net::Address>& by_default_route);

/// Returns the interfaces on which to join a multicast group: the wanted interface, see
/// choose_data_interface(); otherwise all except loopback. Returns loopback only if `stays_here`,
/// or if no other interface has an address of the family.
[[nodiscard]] std::vector<net::Interface> choose_group_interfaces(
    const std::string& wanted, const std::vector<net::Interface>& all, int family, bool stays_here);

/// Reserves a port on all addresses of the family (AF_INET or AF_INET6), within the ports of the
/// settings, for a store that this process may have to serve.
///
/// Throws Error(kSystem) if no port is free.
[[nodiscard]] net::PortReservation reserve_store_port(const base::Config& config, int family);

}  // namespace unisono::rendezvous
