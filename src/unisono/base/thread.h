#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unisono {

/// Pause instruction for spin loops: leaves the core's execution units to the sibling hyperthread.
inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Number of polls in a tight loop before a wait yields the core. The limit adapts to earlier
/// waits: the limit falls if the peers arrive after a yield, because the peers need this core. Any
/// thread.
class SpinLimit {
 public:
  /// Enough for a barrier of ranks that each have a core.
  static constexpr int kLeast = 32;
  /// Half of the cost of a sleep and a wakeup.
  static constexpr int kMost = 2000;

  [[nodiscard]] int n_spins() const { return n_spins_.load(std::memory_order_relaxed); }

  /// Records that the peers arrived while this thread spun. Not for peers that were present at
  /// once: that case gives no information, and happens every other time on a shared core.
  void note_spun() { set(std::min(2 * n_spins(), kMost)); }

  /// Records that the peers arrived after `n_yields` yields. After 1 to 4 yields the yields let the
  /// peers run, and the limit falls. Otherwise the peers run on other cores, so that spinning would
  /// have sufficed, and the limit rises.
  void note_yielded(int n_yields) {
    if (n_yields >= 1 && n_yields <= kFewYields) {
      set(std::max(n_spins() / 2, kLeast));
    } else {
      note_spun();
    }
  }

 private:
  static constexpr int kFewYields = 4;

  void set(int n_spins) { n_spins_.store(n_spins, std::memory_order_relaxed); }

  std::atomic<int> n_spins_ = kMost;
};

/// Runs `body` on a new thread. `body` must not throw. `name` is the thread's name in the kernel,
/// at most 15 characters.
///
/// Throws Error(kSystem) if the system can start no more threads. The message begins with
/// `failure`, e.g. "rank 3 can't start its thread".
[[nodiscard]] std::thread start_thread(const char* name,
                                       const std::string& failure,
                                       std::function<void()> body);

/// Returns true if start_thread() started the calling thread. A shutdown may be waiting for such a
/// thread to end.
[[nodiscard]] bool is_started_thread();

/// Returns the number of the calling thread in its process, from 1. Numbers are never reused.
[[nodiscard]] std::uint64_t this_thread_number();

/// Checks for a request to interrupt the calling thread's wait. Throws in that case, preferably
/// Error(kInterrupted).
using InterruptionCheck = void (*)();

/// Registers a `check`, such as the signal check of a language runtime, that waiting threads call
/// about ten times a second. An exception of `check` ends the waiting operation and closes its
/// group. Null removes the check. Thread-safe; there is a single check per process.
void set_interruption_check(InterruptionCheck check) noexcept;

/// Returns the time of the next check during a wait; Deadline::never() if no check is registered.
[[nodiscard]] Deadline next_interruption_check();

/// Calls the registered check, if any. Throws the exception of the check.
void check_interruption();

/// Sleeps until `deadline` and calls the check meanwhile. Throws the exception of the check.
void interruptible_sleep_until(Deadline deadline);

/// An interruptible sleep for one thread that repeats a task until another thread calls end().
class InterruptiblePause {
 public:
  /// Waits until `deadline`. Returns false, at once, if end() was called.
  [[nodiscard]] bool wait_until(Deadline deadline) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!is_over_ && over_.wait_until(mutex_, deadline.time())) {
    }
    return !is_over_;
  }

  /// Ends the current wait and all later waits. The waiting thread may destroy this object as soon
  /// as wait_until() has returned.
  void end() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    is_over_ = true;
    over_.notify_one();
  }

 private:
  Mutex mutex_;
  Condition over_;
  bool is_over_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono
