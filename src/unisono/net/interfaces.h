#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/net/address.h"

namespace unisono::net {

/// A network interface of this machine.
struct Interface {
  std::string name;
  unsigned index = 0;        ///< The kernel's, from 1.
  bool is_up = false;        ///< Switched on.
  bool has_carrier = false;  ///< A moment after it was switched on, at best.
  bool is_loopback = false;
  std::vector<Address> addresses;  ///< With port 0, as the kernel lists them; may be none.
};

/// All of them, by index. Throws Error(kSystem).
[[nodiscard]] std::vector<Interface> interfaces();

/// True if `address` is one of theirs, whatever its port.
[[nodiscard]] bool has_address(const std::vector<Interface>& interfaces, const Address& address);

/// True if `address` leads to this machine: one of theirs, loopback, or the wildcard.
[[nodiscard]] bool is_own_address(const std::vector<Interface>& interfaces, const Address& address);

/// True if `host`, a name or an address, leads to this machine; false also where it is unknown.
/// Asks the resolver, which may take seconds.
[[nodiscard]] bool is_this_machine(const std::string& host);

/// This machine's address by which packets for far away would leave; nothing without such a route.
[[nodiscard]] std::optional<Address> default_route_address();

/// "lo (127.0.0.1, ::1), eth1 (down)", for messages.
[[nodiscard]] std::string describe(const std::vector<Interface>& interfaces);

}  // namespace unisono::net
