#include "unisono/net/loopback.h"

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::net {
namespace {

// An address of a family's loopback network.
std::optional<Address> find_loopback(const std::vector<Interface>& interfaces, int family) {
  for (const Interface& interface : interfaces) {
    for (const Address& address : interface.addresses) {
      if (address.is_loopback() && address.family() == family) {
        return address;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Address loopback_of(const std::vector<Interface>& interfaces) {
  return find_loopback(interfaces, AF_INET)
             ? Address::loopback(0)
             : find_loopback(interfaces, AF_INET6).value_or(Address::loopback(0));
}

bool has_loopback(const std::vector<Interface>& interfaces, const Address& address) {
  return has_address(interfaces, address) ||
         (address.ip() != "::1" && find_loopback(interfaces, AF_INET));
}

std::string loopback_host() {
  std::vector<Interface> all;
  try {
    all = interfaces();
  } catch (const Error&) {
    all.clear();  // Where the kernel lists none, nearly every machine has IPv4's.
  }
  return loopback_of(all).ip();
}

}  // namespace unisono::net
