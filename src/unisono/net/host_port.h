#pragma once

#include <cstdint>
#include <string>

namespace unisono::net {

/// A host's name or numeric address with a port: "alpha:29500", "10.0.0.2:29500", "[::1]:29500".
[[nodiscard]] std::string join_host_port(const std::string& host, std::uint16_t port);

}  // namespace unisono::net
