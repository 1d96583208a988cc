#pragma once

#include <string>
#include <vector>

#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::net {

/// The loopback address, with port 0, of a machine with these interfaces: 127.0.0.1, or ::1 where
/// they have that one and none of IPv4's.
[[nodiscard]] Address loopback_of(const std::vector<Interface>& interfaces);

/// True if a machine with these interfaces reaches itself at `address`, which is a loopback one:
/// all of 127.0.0.0/8 where they have one of it, ::1 where they have that.
[[nodiscard]] bool has_loopback(const std::vector<Interface>& interfaces, const Address& address);

/// The loopback address of this machine, as a host: "127.0.0.1" or "::1".
[[nodiscard]] std::string loopback_host();

}  // namespace unisono::net
