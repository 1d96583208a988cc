#include "unisono/net/interfaces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"

namespace unisono::net {
namespace {

std::optional<Address> address_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr) {
    return std::nullopt;
  }
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) {
    return std::nullopt;
  }
  sockaddr_storage storage{};
  std::memcpy(
      &storage, entry.ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return Address::from_sockaddr(storage);
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw system_error("getifaddrs", errno);
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> held(first, &::freeifaddrs);
  std::map<unsigned, Interface> by_index;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const unsigned index = ::if_nametoindex(entry->ifa_name);
    if (index == 0) {
      continue;  // Gone meanwhile.
    }
    Interface& interface = by_index[index];
    interface.name = entry->ifa_name;
    interface.index = index;
    interface.is_up = (entry->ifa_flags & IFF_UP) != 0;
    interface.has_carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
    interface.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (const std::optional<Address> address = address_of(*entry)) {
      interface.addresses.push_back(*address);
    }
  }
  std::vector<Interface> list;
  for (auto& [index, interface] : by_index) {
    list.push_back(std::move(interface));
  }
  return list;
}

bool has_address(const std::vector<Interface>& interfaces, const Address& address) {
  const std::string ip = address.ip();
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& interface) {
    return std::any_of(interface.addresses.begin(),
                       interface.addresses.end(),
                       [&](const Address& own) { return own.ip() == ip; });
  });
}

bool is_own_address(const std::vector<Interface>& interfaces, const Address& address) {
  return address.is_loopback() || address.is_wildcard() || has_address(interfaces, address);
}

bool is_this_machine(const std::string& host) {
  try {
    const auto addresses = resolve(host, 0);
    const auto all = interfaces();
    return std::ranges::any_of(
        addresses, [&](const Address& address) { return is_own_address(all, address); });
  } catch (const Error&) {
    return false;
  }
}

std::optional<Address> default_route_address() {
  // Addresses for documentation. Connecting a UDP socket sends nothing.
  for (const char* far : {"192.0.2.1", "2001:db8::1"}) {
    const std::optional<Address> address = Address::parse(far, 9);
    if (!address) {
      continue;
    }
    const Fd fd = Fd::open_unshared(
        [&] { return ::socket(address->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (fd.is_open() && ::connect(fd.get(), address->data(), address->size()) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      const std::optional<Address> found = Address::from_sockaddr(own);
      return found ? Address::parse(found->ip(), 0) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string describe(const std::vector<Interface>& interfaces) {
  std::vector<std::string> texts;
  for (const Interface& interface : interfaces) {
    std::vector<std::string> notes;
    for (const Address& address : interface.addresses) {
      notes.push_back(address.ip());
    }
    if (!interface.is_up) {
      notes.emplace_back("down");
    } else if (!interface.has_carrier) {
      notes.emplace_back("no carrier");
    } else if (notes.empty()) {
      notes.emplace_back("no address");
    }
    texts.push_back(fmt::format("{} ({})", interface.name, fmt::join(notes, ", ")));
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace unisono::net
