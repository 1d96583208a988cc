#pragma once

#include "unisono/rendezvous/methods/discovery.h"

namespace unisono::rendezvous {

/// Finds the others through a file that all can lock, file:///PATH: each writes there who it is and
/// where the store would be if it became rank 0; those without a rank are given one. The method has
/// world_size, unless the program gives it, and may have rank and group_name: jobs of different
/// names share a file.
///
/// Entries of processes that have ended meanwhile do not count, nor does a job that is complete:
/// who comes then begins the next one. The last process that needs the file deletes it.
///
/// Throws Error: kInvalidArgument when the method is wrong or the processes contradict each other;
/// kTimeout with those that are here; and as FileStore's constructor does.
[[nodiscard]] Discovered discover_by_file(const DiscoveryRequest& request);

}  // namespace unisono::rendezvous
