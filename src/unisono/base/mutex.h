#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define UNISONO_TSA(x) __attribute__((x))
#else
#define UNISONO_TSA(x)
#endif
#define UNISONO_GUARDED_BY(m) UNISONO_TSA(guarded_by(m))
#define UNISONO_REQUIRES(m) UNISONO_TSA(requires_capability(m))
#define UNISONO_EXCLUDES(m) UNISONO_TSA(locks_excluded(m))

namespace unisono {

/// A std::mutex with the annotations of clang's -Wthread-safety, which libstdc++ lacks.
class UNISONO_TSA(capability("mutex")) Mutex {
 public:
  void lock() UNISONO_TSA(acquire_capability()) { mutex_.lock(); }

  void unlock() UNISONO_TSA(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Locks a Mutex during the lifetime of the object.
class UNISONO_TSA(scoped_lockable) MutexLock {
 public:
  /// Blocks until the mutex is free.
  explicit MutexLock(Mutex& mutex) UNISONO_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }

  ~MutexLock() UNISONO_TSA(release_capability()) { mutex_.unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  MutexLock(MutexLock&&) = delete;
  MutexLock& operator=(MutexLock&&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for Mutex. Wait in a loop that tests the condition: clang's analysis can
/// follow a loop, but not a predicate that is passed as a lambda.
class Condition {
 public:
  /// Waits for a notification, without a limit. The mutex is free during the wait.
  void wait(Mutex& mutex) UNISONO_REQUIRES(mutex) { condition_.wait(mutex); }

  /// Waits for a notification until `deadline`. Returns false if the deadline has passed.
  template <class TimePoint>
  bool wait_until(Mutex& mutex, const TimePoint& deadline) UNISONO_REQUIRES(mutex) {
    return condition_.wait_until(mutex, deadline) == std::cv_status::no_timeout;
  }

  void notify_one() noexcept { condition_.notify_one(); }

  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace unisono
