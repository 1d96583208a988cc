#pragma once

#include <cstdint>
#include <string>

#include "client.h"

namespace unisono::bench {

/// In microseconds.
struct Latency {
  double median;
  double p99;
};

/// From just before a set() until the last of `n_clients` knows of it: by a callback with the old
/// and the new value ("watch"), or because its wait for a new key ends ("wait"). A hundred times a
/// second.
///
/// Throws where a callback has other values.
[[nodiscard]] Latency latency(const Library& library,
                              std::uint16_t port,
                              const std::string& operation,
                              int n_clients,
                              double seconds);

}  // namespace unisono::bench
