#pragma once

#include <functional>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {

/// What the program gives, where it is not negative.
struct GivenRank {
  int rank = -1;
  int world_size = -1;
};

/// A process that looks for the others of its job.
struct DiscoveryRequest {
  InitMethod method;
  GivenRank given;
  Config config;
  Environment environment;
  Deadline deadline;
};

/// A process's place among those that it found.
struct Discovered {
  LaunchInfo launch_info;
  /// What the others need until all have met at the store, such as a port that is kept for it; may
  /// be null.
  std::shared_ptr<void> presence;
};

/// Finds the place of this process. Throws Error: kInvalidArgument when the method is wrong,
/// kTimeout with those that are here.
using Discovery = std::function<Discovered(const DiscoveryRequest& request)>;

/// Makes "scheme://..." a way to meet, for all process groups of this program. `discover` is called
/// on each rank's thread that makes one. Thread-safe.
///
/// Throws Error(kInvalidArgument) for a name that is no scheme or that one has already.
void register_init_method(const std::string& scheme, Discovery discover);

/// Null for env:// and tcp://HOST:PORT, which say all without others; see resolve_rendezvous().
/// Thread-safe.
///
/// Throws Error(kInvalidArgument) with those that there are, if there is no such scheme.
[[nodiscard]] Discovery find_discovery(const InitMethod& method);

}  // namespace unisono::rendezvous
