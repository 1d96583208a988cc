#pragma once

#include <string>

#include "unisono/base/config.h"
#include "unisono/base/log.h"
#include "unisono/engine/backends.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono {
class ProcessGroup;
}

namespace unisono::comm {

/// What this process would have carry out operations, before it has met the others.
struct BackendChoice {
  engine::Backend backend = {};
  rendezvous::BackendNeed need = {};
};

/// The backend of that name. Where the process can't have it the choice says why, if
/// UNISONO_BACKEND_FALLBACK allows another one. Throws Error as prepared() does, if not.
[[nodiscard]] BackendChoice choose_backend(const std::string& name, const Environment& environment);

/// What all ranks have, now that each has told what it can't: its choice, or all the native one.
/// Rank 0 warns of that.
[[nodiscard]] engine::Backend agreed_backend(const engine::Backend& chosen,
                                             const rendezvous::Roster& roster,
                                             const Logger& logger);

/// What carries out the operations of the group's job.
[[nodiscard]] const engine::Backend& backend_of(ProcessGroup& group);

}  // namespace unisono::comm
