#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// What this process learns about memory by system calls.
struct MemoryCalls {
  std::string arena_error = {};  ///< Why memory for an arena can't be had; empty if it can.
  std::optional<std::uint64_t> shm_bytes = {};  ///< Size of /dev/shm; nothing if there is none.
  rlimit address_space{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  rlimit locked{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  rlimit files{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
};

/// Makes and maps a page as arenas are made, and asks for the limits.
[[nodiscard]] MemoryCalls call_memory();

/// Shared memory, /dev/shm, and the limits of this process, which is one of `world_size` ranks.
[[nodiscard]] Findings examine_limits(const MemoryCalls& calls,
                                      const std::filesystem::path& root,
                                      int world_size);

}  // namespace unisono::cli::doctor
