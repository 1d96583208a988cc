#pragma once

#include <cstdint>
#include <string>

namespace unisono::net {

/// Who listens on a TCP port of this network namespace: "process 4123 (python3 train.py)".
///
/// Empty when nobody does, or when /proc hides the process (another user's).
[[nodiscard]] std::string find_port_holder(std::uint16_t port);

}  // namespace unisono::net
