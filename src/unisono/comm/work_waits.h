#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/rank_wait.h"

namespace unisono::comm {

/// For which asynchronous operations of a rank threads wait, and which have callbacks. Thread-safe.
class WorkWaits {
 public:
  /// `thread` does nothing else until the operation has ended, or another one for which it waits
  /// already.
  void begin(std::uint64_t thread, const WaitId& work) UNISONO_EXCLUDES(mutex_);
  void end(std::uint64_t thread) UNISONO_EXCLUDES(mutex_);

  /// Nothing where any of several would end its wait.
  [[nodiscard]] std::optional<WaitId> find(std::uint64_t thread) const UNISONO_EXCLUDES(mutex_);

  /// When the thread began to wait that waits longest for it, or for any of several with it;
  /// nothing where none does.
  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since(const WaitId& work) const
      UNISONO_EXCLUDES(mutex_);

  /// Something is to be called when the operation has ended, until it has been.
  void add_callback(const WaitId& work) UNISONO_EXCLUDES(mutex_);
  void remove_callback(const WaitId& work) UNISONO_EXCLUDES(mutex_);

  /// Whether something may be called while the rank waits in `wait`: of the same group's collective
  /// operations none ends before those that were called earlier.
  [[nodiscard]] bool has_callback_besides(const WaitId& wait) const UNISONO_EXCLUDES(mutex_);

 private:
  struct Wait {
    Deadline::Clock::time_point since;
    std::set<WaitId> works;
  };

  mutable Mutex mutex_;
  std::map<std::uint64_t, Wait> waits_ UNISONO_GUARDED_BY(mutex_);  // By thread.
  std::set<WaitId> with_callback_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
