#include "unisono/net/host.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/text.h"

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
      continue;  // The interface has disappeared meanwhile.
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
  // Addresses that are reserved for documentation. Connecting a UDP socket sends no packet.
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

namespace {

// Returns a loopback address of the family, if an interface has one.
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
    // Without a list of interfaces, IPv4 is assumed: nearly every machine has 127.0.0.1.
    all.clear();
  }
  return loopback_of(all).ip();
}

namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == std::string_view::npos;
}

bool is_link_local(const std::string& ip) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, ip.c_str(), &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}

// Returns the interfaces that can be an IPv6 zone, such as " (this machine has eth0, ib0)".
std::string list_zones() {
  std::vector<std::string> names;
  for (const Interface& interface : interfaces()) {
    if (!interface.is_loopback) {
      names.push_back(interface.name);
    }
  }
  return names.empty() ? "" : fmt::format(" (this machine has {})", fmt::join(names, ", "));
}

std::string describe_fault(const Address& address) {
  const std::string ip = address.ip();
  if (address.is_multicast()) {
    return "it is a multicast group; only an init_method tcp://GROUP:PORT can meet there";
  }
  if (ip == "255.255.255.255") {
    return "it is the broadcast address";
  }
  if (is_link_local(ip)) {
    return fmt::format(
        "a link-local address needs the interface that leads to it: write {}%eth0, with the "
        "interface's name in place of eth0{}",
        ip,
        list_zones());
  }
  return "";
}

std::string separate_port(const std::string& host,
                          std::string_view port,
                          std::string_view port_name) {
  return port_name.empty()
             ? fmt::format(
                   "an IPv6 address before a port stands in brackets: write [{}]:{}", host, port)
             : fmt::format(
                   "it is a host with a port: write {}, and give {} as {}", host, port, port_name);
}

// Describes the error in a text with a bracket that is not an address such as "[::1]".
std::string describe_bracket_fault(const std::string& host, std::string_view port_name) {
  const std::size_t closing = host.find(']');
  if (!host.starts_with('[')) {
    return "nothing opens the ]; an IPv6 address may stand in brackets, as [::1]";
  }
  if (closing == std::string::npos) {
    return fmt::format("the [ is not closed: write {}",
                       Address::parse(host + "]", 0) ? host + "]" : "it as [::1]");
  }
  const std::string inner = host.substr(1, closing - 1);
  const std::string_view rest = std::string_view(host).substr(closing + 1);
  if (inner.find(':') == std::string::npos) {
    return fmt::format("brackets are for IPv6 addresses: write {}{}", inner, rest);
  }
  if (std::string fault = describe_host_fault(inner, port_name); !fault.empty()) {
    return fault;
  }
  return rest.starts_with(':') && is_number(rest.substr(1)) && !port_name.empty()
             ? separate_port(inner, rest.substr(1), port_name)
             : fmt::format("\"{}\" follows the ]", rest);
}

// Describes the error in a text with a colon or a zone that is not a numeric address.
std::string describe_ipv6_fault(const std::string& host, std::string_view port_name) {
  const std::size_t colon = host.rfind(':');
  const std::size_t percent = host.find('%');
  const std::string ip = host.substr(0, percent);
  if (colon != std::string::npos && is_number(std::string_view(host).substr(colon + 1))) {
    const std::string front = host.substr(0, colon);
    const bool is_name = front.find(':') == std::string::npos;
    if (is_name ? !front.empty() && !port_name.empty() : Address::parse(front, 0).has_value()) {
      const std::string fault = describe_host_fault(front, port_name);
      return fault.empty() ? separate_port(front, host.substr(colon + 1), port_name) : fault;
    }
  }
  if (percent == std::string::npos || !Address::parse(ip, 0)) {
    return "it is not an IPv6 address, and no name has a \":\" or \"%\"";
  }
  return is_link_local(ip)
             ? fmt::format(
                   "this machine has no interface \"{}\"{}", host.substr(percent + 1), list_zones())
             : fmt::format("only link-local addresses (fe80::) have a zone: write {}", ip);
}

// Describes the syntax error of a host name; does not query a name server.
std::string describe_name_fault(std::string_view name) {
  constexpr std::size_t kMaxNameBytes = 253;
  constexpr std::size_t kMaxLabelBytes = 63;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const auto strange = std::ranges::find_if(name, [&](char letter) {
    return static_cast<unsigned char>(letter) < 0x80 &&
           kAllowed.find(letter) == std::string_view::npos;
  });
  if (strange != name.end()) {
    return fmt::format("no name has a \"{}\"; write a name or an address, as alpha or 10.0.0.1",
                       *strange);
  }
  if (name.starts_with('-')) {
    return "no name begins with \"-\"";
  }
  name.remove_suffix(name.ends_with('.') ? 1 : 0);
  if (name.size() > kMaxNameBytes) {
    return fmt::format(
        "a name has at most {} characters, and this one {}", kMaxNameBytes, name.size());
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (end == begin || end - begin > kMaxLabelBytes) {
      return fmt::format("between its dots a name has 1 to {} characters", kMaxLabelBytes);
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace

std::string join_host_port(const std::string& host, std::uint16_t port) {
  const bool is_bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return is_bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string describe_host_fault(const std::string& host, std::string_view port_name) {
  if (host.empty()) {
    return "the host is missing";
  }
  if (const std::optional<Address> address = Address::parse(host, 0)) {
    return describe_fault(*address);
  }
  if (host.find(' ') != std::string::npos || escape_text(host, host.size()) != host) {
    return "it has a blank or an invisible character in it";
  }
  if (const std::size_t scheme = host.find("://"); scheme != std::string::npos) {
    return fmt::format("it is a URL: write the host only, without {}", host.substr(0, scheme + 3));
  }
  if (host.find_first_of("[]") != std::string::npos) {
    return describe_bracket_fault(host, port_name);
  }
  if (host.find_first_of(":%") != std::string::npos) {
    return describe_ipv6_fault(host, port_name);
  }
  const bool has_numbers_only = host.find('.') != std::string::npos &&
                                host.find_first_not_of("0123456789.") == std::string::npos;
  return has_numbers_only ? "an IPv4 address is four numbers from 0 to 255, as 10.0.0.1"
                          : describe_name_fault(host);
}

void check_host(const std::string& given_as, const std::string& host, std::string_view port_name) {
  if (const std::string fault = describe_host_fault(host, port_name); !fault.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a valid host: {}", escape_text(given_as, 300), fault));
  }
}

}  // namespace unisono::net
