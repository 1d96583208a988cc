#include "unisono/net/host_port.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace unisono::net {

std::string join_host_port(const std::string& host, std::uint16_t port) {
  const bool is_bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return is_bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace unisono::net
