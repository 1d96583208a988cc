#pragma once

#include "unisono/base/config.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::cli::doctor {

/// What can be read of an environment that rendezvous::find_launch_info() refuses: address, port,
/// and rank with world size, each as if nothing were wrong with the others. What can't is an empty
/// address, port 0, rank -1 of 1.
[[nodiscard]] rendezvous::LaunchInfo read_in_part(const Environment& environment);

}  // namespace unisono::cli::doctor
