#pragma once

#include <cstdint>

namespace unisono::engine {

/// Which of a rank's waits: in a collective operation, by its number in the group, or for a
/// message, by this rank's count of the group's messages.
struct WaitId {
  std::uint32_t group = 0;
  bool is_message = false;
  std::uint64_t sequence = 0;

  friend auto operator<=>(const WaitId&, const WaitId&) = default;
};

}  // namespace unisono::engine
