#pragma once

#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// What tcp://HOST:PORT?rank=R&world_size=N says; `rank` and `world_size` replace those of the text
/// where they are not negative. Rank 0 serves the store at that address.
///
/// Throws Error(kInvalidArgument) with one message that names everything that is missing or wrong.
[[nodiscard]] LaunchInfo read_tcp(const InitMethod& method, int rank = -1, int world_size = -1);

}  // namespace unisono::rendezvous
