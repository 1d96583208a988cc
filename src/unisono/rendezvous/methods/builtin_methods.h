#pragma once

#include <optional>
#include <string>

#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// What a method and its program say of a process's place.
struct RankRequest {
  std::optional<int> rank;  ///< Nothing: any.
  int world_size;
  std::string group_name;
};

/// From the options of the method; `given` comes first. Where every process `needs_rank`, there is
/// no group_name. `problems` are what was found already.
///
/// Throws Error(kInvalidArgument) with everything that is missing or wrong, other options included.
[[nodiscard]] RankRequest read_rank_request(const InitMethod& method,
                                            const GivenRank& given,
                                            bool needs_rank = false,
                                            std::string problems = "");

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

/// Whether ranks meet at a multicast group: tcp://239.1.2.3:PORT or tcp://[ff15::1]:PORT.
[[nodiscard]] bool is_multicast(const InitMethod& method);

/// Finds the others by what all of them announce, and agrees with them on the ranks, which nobody
/// may give. The method has world_size, unless the program gives it, and may have a group_name:
/// jobs of different names share a multicast group. Without a secret, only loopback is used.
///
/// Throws Error: kInvalidArgument when the method is wrong or the world sizes differ, kSystem where
/// multicast is impossible, kTimeout with those that are here.
[[nodiscard]] Discovered discover_by_multicast(const DiscoveryRequest& request);

}  // namespace unisono::rendezvous
