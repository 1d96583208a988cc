#pragma once

#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

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
