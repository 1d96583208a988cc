#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"

namespace unisono::python {

/// Threads on which futures are marked as complete, which runs what was attached to them. That may
/// wait for other operations of the group, so the group's progress thread must not do it, and what
/// comes next gets a thread of its own where the others are busy. Its threads share it, and end
/// with stop(). Thread-safe.
class FutureRunner : public std::enable_shared_from_this<FutureRunner> {
 public:
  FutureRunner() = default;
  ~FutureRunner() = default;

  FutureRunner(const FutureRunner&) = delete;
  FutureRunner& operator=(const FutureRunner&) = delete;
  FutureRunner(FutureRunner&&) = delete;
  FutureRunner& operator=(FutureRunner&&) = delete;

  /// `task` must not throw. It runs here and now where no thread can be had.
  void run(std::function<void()> task) UNISONO_EXCLUDES(mutex_);

  /// Waits for what is under way. Later tasks run on their caller's thread.
  void stop() UNISONO_EXCLUDES(mutex_);

 private:
  void work() UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> tasks_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ UNISONO_GUARDED_BY(mutex_);
  std::size_t n_idle_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::python
