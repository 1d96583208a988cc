#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/fd.h"

namespace unisono {

/// What the kernel tells of a process, or of one of its threads.
struct ProcessStat {
  char state = '?';  ///< As ps(1) shows it: 'R', 'S', 'D', 'T', 'Z', ...
  pid_t parent = 0;
  std::uint64_t flags = 0;         ///< The kernel's PF_ bits.
  std::uint64_t pending = 0;       ///< Signals 1 to 31 that wait for it, from bit 0 on.
  std::chrono::nanoseconds start;  ///< When it began, as boot_time() counts, to 10 ms.
};

/// Reads /proc/4123/stat for the folder "/proc/4123". Nothing if there is none.
[[nodiscard]] std::optional<ProcessStat> read_process_stat(const std::string& folder);

/// Time since the machine started, asleep or not.
[[nodiscard]] std::chrono::nanoseconds boot_time();

/// Whether a process of this machine, which ran at `known_at` (by boot_time()), runs no more: also
/// where its parent has not reaped it yet, where it is being killed and its memory goes, or where
/// another process has got its pid. Costs a look at each of its threads.
[[nodiscard]] bool has_ended(pid_t pid, std::chrono::nanoseconds known_at);

/// A descriptor that becomes readable when the process ends; not open where there is no such
/// process or the kernel has none.
[[nodiscard]] Fd open_pidfd(pid_t pid);

}  // namespace unisono
