#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "unisono/comm/process_group.h"

namespace unisono::comm {

/// How long operations that are under way when a process ends have to end.
inline constexpr std::chrono::seconds kExitPatience{30};

/// The same of a process that ends with an error: its launcher waits to end the other ranks.
inline constexpr std::chrono::seconds kFailedExitPatience{5};

/// Leaves the groups of a process that ends, all at the same time. Operations under way may end
/// within `patience`; then, or when the program interrupts the wait, their group is aborted, here
/// and on the ranks that wait for this one. A mismatch that no call has ended with is logged, and
/// turns the exit code 0 into 1. To be called before exit(), or by a function that exit() runs.
void leave_at_exit(std::span<const std::shared_ptr<ProcessGroup>> groups,
                   std::chrono::seconds patience) noexcept;

}  // namespace unisono::comm
