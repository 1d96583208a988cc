#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace unisono::launch {

/// How many processes the kernel has killed for lack of memory, where it says so.
struct MemoryKills {
  std::optional<std::uint64_t> group = {};    ///< In this process's control group.
  std::optional<std::uint64_t> machine = {};  ///< On this machine.
};

/// Up to now. `root` is where proc and sys lie, other than "" in tests.
[[nodiscard]] MemoryKills count_memory_kills(const std::string& root = "");

/// What the counts say of a SIGKILL between them.
[[nodiscard]] std::string describe_kill(const MemoryKills& before, const MemoryKills& after);

}  // namespace unisono::launch
