#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/log.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono {
class ProcessGroup;
}

namespace unisono::comm {

/// The backend of this process before the rendezvous.
struct BackendChoice {
  engine::Backend backend = {};
  rendezvous::BackendNeed need = {};
};

/// Returns the backend of that name. If the process cannot use the backend, and the settings permit
/// a fallback, returns the native backend and the reason; otherwise throws Error like
/// engine::prepared(). Invalid settings are reported first.
[[nodiscard]] BackendChoice choose_backend(const std::string& name,
                                           const ParsedConfig& settings,
                                           const Environment& environment);

/// Returns the backend of all ranks: the chosen backend, or the native backend if a rank cannot use
/// its choice. In that case rank 0 logs a warning.
[[nodiscard]] engine::Backend agreed_backend(const engine::Backend& chosen,
                                             const rendezvous::Roster& roster,
                                             const base::Logger& logger);

/// Returns the backend of the group's job.
[[nodiscard]] const engine::Backend& backend_of(ProcessGroup& group);

/// Time limit at the exit of a process for operations in flight.
inline constexpr std::chrono::seconds kExitPatience{30};

/// Time limit at the exit with an error: the launcher waits for the exit before it ends the other
/// ranks.
inline constexpr std::chrono::seconds kFailedExitPatience{5};

/// Leaves the groups of a process that ends, all at the same time. Operations in flight may end
/// within `patience`; then, or when the program interrupts the wait, their group is aborted, here
/// and on the ranks that wait for this rank. A mismatch that no call has thrown is logged, and
/// changes the exit code 0 to 1. Call before exit(), or in a function that exit() runs.
void leave_at_exit(std::span<const std::shared_ptr<ProcessGroup>> groups,
                   std::chrono::seconds patience) noexcept;

}  // namespace unisono::comm
