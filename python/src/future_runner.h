#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "unisono/base/mutex.h"

namespace unisono::python {

/// Threads that mark futures as complete and thereby run the callbacks attached to the futures. A
/// callback may wait for other operations of the group, so callbacks must not run on the group's
/// progress thread. A new thread is started if all threads are busy.
///
/// Shared by the backend, works in flight and the threads. The threads end with stop().
/// Thread-safe.
class FutureRunner : public std::enable_shared_from_this<FutureRunner> {
 public:
  FutureRunner() = default;
  ~FutureRunner() = default;

  FutureRunner(const FutureRunner&) = delete;
  FutureRunner& operator=(const FutureRunner&) = delete;
  FutureRunner(FutureRunner&&) = delete;
  FutureRunner& operator=(FutureRunner&&) = delete;

  /// Runs `task` on one of the threads, or on the calling thread if no thread can be started.
  /// `task` must not throw.
  void run(std::function<void()> task) UNISONO_EXCLUDES(mutex_);

  /// Waits for the tasks in progress and joins the threads. Later tasks run on the calling thread.
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
