#pragma once

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"

namespace unisono::health {

/// Shows where this rank's threads are when another rank waits for it. Thread-safe.
class StackDump {
 public:
  explicit StackDump(Logger logger);

  /// Logs the stacks, if the log takes debug lines: at most once in two seconds, as many ranks may
  /// wait for one.
  void show(int asking_rank) noexcept UNISONO_EXCLUDES(mutex_);

 private:
  Logger logger_;
  Mutex mutex_;
  Deadline next_ UNISONO_GUARDED_BY(mutex_);
};

/// Answers what another rank asks, and has the group hear what it tells, now or when it is made.
/// False for what no correct rank says. For the watcher: waits for nothing.
[[nodiscard]] bool answer(const Heard& heard, GroupRegistry& groups, StackDump& stacks);

}  // namespace unisono::health
