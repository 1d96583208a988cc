#pragma once

#include <memory>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/init_method.h"

namespace unisono::rendezvous {

/// Whether ranks meet at a multicast group: tcp://239.1.2.3:PORT or tcp://[ff15::1]:PORT.
[[nodiscard]] bool is_multicast(const InitMethod& method);

/// A process's place among those that it met at a multicast group.
struct Gathered {
  Assignment assignment;
  /// Keeps telling the others what they may not have heard yet, and holds the store's port; to be
  /// kept until all have met at the store.
  std::shared_ptr<void> presence;
};

/// What the program gives, where it is not negative.
struct GivenPlace {
  int rank = -1;
  int world_size = -1;
};

/// Finds the others by what all of them announce, and agrees with them on the ranks, which nobody
/// may give. The method has world_size, unless `given` does, and may have a group_name: jobs of
/// different names share a multicast group. Without a secret, only loopback is used.
///
/// Throws Error: kInvalidArgument when the method is wrong or the world sizes differ, kSystem where
/// multicast is impossible, kTimeout with those that are here.
[[nodiscard]] Gathered gather_by_multicast(const InitMethod& method,
                                           const Config& config,
                                           const GivenPlace& given,
                                           Deadline deadline);

}  // namespace unisono::rendezvous
