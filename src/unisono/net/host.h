#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/net/address.h"

namespace unisono::net {

/// A network interface of this machine.
struct Interface {
  std::string name;
  unsigned index = 0;  ///< The kernel's index, from 1.
  bool is_up = false;  ///< The interface is enabled.
  /// The link is up. The kernel sets this a moment after the interface was enabled.
  bool has_carrier = false;
  bool is_loopback = false;
  std::vector<Address> addresses;  ///< Addresses with port 0 in the kernel's order; may be empty.
};

/// Returns all interfaces, sorted by index. Throws Error(kSystem).
[[nodiscard]] std::vector<Interface> interfaces();

/// Returns true if an interface has `address`; ignores the port.
[[nodiscard]] bool has_address(const std::vector<Interface>& interfaces, const Address& address);

/// Returns true if `address` leads to this machine: an address of an interface, a loopback address,
/// or the wildcard.
[[nodiscard]] bool is_own_address(const std::vector<Interface>& interfaces, const Address& address);

/// Returns true if `host`, a name or an address, leads to this machine. Returns false also if the
/// name is unknown. Queries the resolver, which may take seconds.
[[nodiscard]] bool is_this_machine(const std::string& host);

/// Returns this machine's source address for packets on the default route; std::nullopt without
/// such a route.
[[nodiscard]] std::optional<Address> default_route_address();

/// Returns a text for messages, such as "lo (127.0.0.1, ::1), eth1 (down)".
[[nodiscard]] std::string describe(const std::vector<Interface>& interfaces);

/// Returns the loopback address, with port 0, of a machine with these interfaces: ::1 if only IPv6
/// has a loopback address, otherwise 127.0.0.1.
[[nodiscard]] Address loopback_of(const std::vector<Interface>& interfaces);

/// Returns true if a machine with these interfaces reaches itself at the loopback address
/// `address`: any address of 127.0.0.0/8 if an interface has an address of this network, ::1 if an
/// interface has ::1.
[[nodiscard]] bool has_loopback(const std::vector<Interface>& interfaces, const Address& address);

/// Returns the loopback address of this machine as a host: "127.0.0.1" or "::1".
[[nodiscard]] std::string loopback_host();

/// Joins a host name or numeric address with a port: "alpha:29500", "10.0.0.2:29500",
/// "[::1]:29500".
[[nodiscard]] std::string join_host_port(const std::string& host, std::uint16_t port);

/// Returns the reason why no machine can have this name or numeric address, with a form that works.
/// Returns an empty text if a machine may have the name, even if no name server has it yet.
///
/// `port_name` is the option for the port, such as "MASTER_PORT"; it is empty if ":" and a number
/// may follow the host itself. Examines only the text, and this machine's interfaces for the zone
/// of an address.
[[nodiscard]] std::string describe_host_fault(const std::string& host,
                                              std::string_view port_name = "the port");

/// Throws Error(kInvalidArgument) if describe_host_fault() finds a fault. `given_as` is the user's
/// input, with the value ("--master-addr a/b").
void check_host(const std::string& given_as,
                const std::string& host,
                std::string_view port_name = "the port");

}  // namespace unisono::net
