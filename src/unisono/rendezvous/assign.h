#pragma once

#include "unisono/base/config.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// Which rank this process is and where the ranks meet, where find_discovery() has nothing: env://
/// by the launcher's variables, see find_launch_info(); tcp://HOST:PORT by what it says itself.
/// What `rank` and `world_size` give holds, -1 being nothing.
///
/// Throws Error(kInvalidArgument) with one message that names everything that is missing or wrong.
[[nodiscard]] LaunchInfo assign(const InitMethod& method,
                                const Environment& environment,
                                int rank = -1,
                                int world_size = -1);

}  // namespace unisono::rendezvous
