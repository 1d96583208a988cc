#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::comm {

/// Which ranks of this rank's node may use one and the same processor only, though they are
/// processes of their own: "ranks 0 and 1 may use core 3 only"; empty where none do. `cores_of` is
/// the function of that name.
[[nodiscard]] std::string describe_shared_core(
    const rendezvous::Roster& roster, const std::function<std::vector<int>(pid_t)>& cores_of);

/// The first rank of a node warns of it, where the machine has other cores.
void warn_of_shared_core(const rendezvous::Roster& roster, const Logger& logger);

}  // namespace unisono::comm
