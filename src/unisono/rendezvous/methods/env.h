#pragma once

#include "unisono/base/config.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

struct Launcher;

/// Reads MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK; `rank` and `world_size` replace
/// the variables where they are not -1. What is not set comes from the variables of
/// `launcher`, if there is one.
///
/// Throws Error(kInvalidArgument) with one message that names everything that is missing or wrong.
[[nodiscard]] LaunchInfo read_env(const Environment& environment,
                                  int rank = -1,
                                  int world_size = -1,
                                  const Launcher* launcher = nullptr);

}  // namespace unisono::rendezvous
