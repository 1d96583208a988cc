#pragma once

#include "unisono/base/log.h"
#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/environment.h"

namespace unisono::launch {

/// Gives each rank of this node the cores that it is to be bound to, of those that this process may
/// use, and the number of threads that fits them, unless that is the user's. Says where there are
/// fewer cores than ranks.
///
/// Throws what read_topology() does.
void bind_ranks(BindTo bind_to, JobLayout& job, const Logger& logger);

}  // namespace unisono::launch
