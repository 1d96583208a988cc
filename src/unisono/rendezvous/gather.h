#pragma once

#include <functional>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/init_method.h"

namespace unisono::rendezvous {

/// What the program gives, where it is not negative.
struct GivenPlace {
  int rank = -1;
  int world_size = -1;
};

/// A process that looks for the others of its job.
struct GatherRequest {
  InitMethod method;
  GivenPlace given;
  Config config;
  Environment environment;
  Deadline deadline;
};

/// A process's place among those that it found.
struct Gathered {
  Assignment assignment;
  /// What the others need until all have met at the store, such as a port that is kept for it; may
  /// be null.
  std::shared_ptr<void> presence;
};

/// Finds the place of this process. Throws Error: kInvalidArgument when the method is wrong,
/// kTimeout with those that are here.
using Gather = std::function<Gathered(const GatherRequest& request)>;

/// Makes "scheme://..." a way to meet, for all process groups of this program. `gather` is called
/// on each rank's thread that makes one. Thread-safe.
///
/// Throws Error(kInvalidArgument) for a name that is no scheme or that one has already.
void register_init_method(const std::string& scheme, Gather gather);

/// Null for env:// and tcp://HOST:PORT, which say all without others; see assign(). Thread-safe.
///
/// Throws Error(kInvalidArgument) with those that there are, if there is no such scheme.
[[nodiscard]] Gather find_gather(const InitMethod& method);

}  // namespace unisono::rendezvous
