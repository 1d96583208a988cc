#pragma once

#include <chrono>
#include <random>

#include "unisono/base/deadline.h"

namespace unisono::net {

/// Pauses that grow from 2 ms to half a second, each drawn from [half, whole], so that a thousand
/// ranks do not knock in step.
class Backoff {
 public:
  /// Ends by the deadline. Throws what ends an interruptible pause.
  void pause(Deadline deadline);

 private:
  std::minstd_rand random_{std::random_device{}()};
  std::chrono::milliseconds pause_{2};
};

}  // namespace unisono::net
