#pragma once

#include "unisono/base/fd.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/stack_dump.h"
#include "unisono/net/hello.h"

namespace unisono::health {

/// Does what a connection of another rank's is for, after its hello: answers what that rank asks of
/// the group, hears what it tells, or hands the connection to the group's engine. For the watcher:
/// waits for 0.2 s at most.
void answer(MonitoredGroup& group,
            GroupRegistry& groups,
            StackDump& stacks,
            const net::HelloInfo& peer,
            Fd socket);

}  // namespace unisono::health
