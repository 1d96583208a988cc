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

/// std::mutex that clang's -Wthread-safety understands (libstdc++'s own carries no annotations).
class UNISONO_TSA(capability("mutex")) Mutex {
 public:
  void lock() UNISONO_TSA(acquire_capability()) { mutex_.lock(); }

  void unlock() UNISONO_TSA(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class UNISONO_TSA(scoped_lockable) MutexLock {
 public:
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

/// Condition variable for Mutex. Wait in a loop that tests the condition: clang's analysis can
/// follow a loop, but not a predicate passed as a lambda.
class Condition {
 public:
  void wait(Mutex& mutex) UNISONO_REQUIRES(mutex) { condition_.wait(mutex); }

  /// Returns false when `deadline` passed without a notification.
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
