#pragma once

#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/stack_dump.h"

namespace unisono::health {

/// Answers what another rank asks, and has the group hear what it tells, now or when it is made.
/// False for what no correct rank says. For the watcher: waits for nothing.
[[nodiscard]] bool answer(const Heard& heard, GroupRegistry& groups, StackDump& stacks);

}  // namespace unisono::health
