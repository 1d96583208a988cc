#pragma once

#include <cstdint>

namespace unisono {

/// TCP ports from `first` to `last`, both included.
struct PortRange {
  std::uint16_t first;
  std::uint16_t last;
};

}  // namespace unisono
