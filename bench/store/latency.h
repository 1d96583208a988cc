#pragma once

#include <cstdint>
#include <string>

#include "client.h"

namespace unisono::bench {

/// Latency in microseconds.
struct Latency {
  double median;
  double p99;
};

/// Measures the time from just before a set() until the last of `n_clients` has received the value:
/// by a callback with the old and the new value ("watch"), or because its wait for a new key ends
/// ("wait"). About a hundred times per second.
///
/// Throws if a callback has wrong values.
[[nodiscard]] Latency latency(const Library& library,
                              std::uint16_t port,
                              const std::string& operation,
                              int n_clients,
                              double seconds);

}  // namespace unisono::bench
