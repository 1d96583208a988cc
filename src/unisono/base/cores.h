#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

namespace unisono {

/// The processors that a process (0: this thread) may use, by the kernel's numbers, in ascending
/// order. None where that can't be told.
[[nodiscard]] std::vector<int> cores_of(pid_t pid);

/// Processors that this process may use at the same time: its affinity mask, less where its cgroup
/// allows less. At least 1.
[[nodiscard]] int available_cores();

/// Whether each of these processes of this machine, such as the ranks of a node, can have a core of
/// its own at the same time: then they may spin while they wait. A process may be there several
/// times; what is not known of one is taken to be as for this process.
[[nodiscard]] bool has_core_for_each(std::span<const pid_t> processes);

}  // namespace unisono
