#include "unisono/net/host_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::net {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == std::string_view::npos;
}

bool is_link_local(const std::string& ip) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, ip.c_str(), &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}

// " (this machine has eth0, ib0)": the interfaces that may be a zone.
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

// Of a text with a bracket that is no address as "[::1]" is.
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
             : fmt::format("\"{}\" stands behind the ]", rest);
}

// Of a text with a colon or a zone that is no numeric address.
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
    return "it is no IPv6 address, and no name has a \":\" or \"%\"";
  }
  return is_link_local(ip)
             ? fmt::format(
                   "this machine has no interface \"{}\"{}", host.substr(percent + 1), list_zones())
             : fmt::format("only link-local addresses (fe80::) have a zone: write {}", ip);
}

// Of names, whether a name server has them or not.
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
                fmt::format("{} names no machine: {}", escape_text(given_as, 300), fault));
  }
}

}  // namespace unisono::net
