#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"

namespace unisono::net {

/// Wakes a thread that sleeps in poll(2) or epoll_wait(2). Thread-safe.
class Wakeup {
 public:
  Wakeup();

  /// Returns a descriptor that is readable from wake() to clear().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void wake() const noexcept;

  /// Resets the wake-ups so far.
  void clear() const noexcept;

 private:
  Fd fd_;
};

/// A single-threaded event loop on epoll: calls back when file descriptors are ready, timers
/// expire, or another thread posts a task.
///
/// The owner runs the loop on one thread and destroys it after run() has returned. post(), wake()
/// and stop() may be called from any thread; all other functions belong to the loop's thread.
/// Callbacks may add, change and remove descriptors and timers, including their own, but must not
/// run the loop.
///
/// An exception of a callback leaves run_once() or run(); both may be called again. Ready
/// descriptors are then reported again. A timer that threw has ended, and the remaining tasks of a
/// batch of posts are dropped.
class EventLoop {
 public:
  /// Receives epoll(7)'s event bits.
  using FdCallback = std::function<void(std::uint32_t events)>;
  using Task = std::function<void()>;

  /// Id of a timer; 0 is never used.
  using TimerId = std::uint64_t;

  EventLoop();

  /// Watches `fd` for `events` (EPOLLIN, EPOLLOUT; errors always), level-triggered. The loop does
  /// not own the descriptor: call remove() before close(). If add() throws, the loop is unchanged.
  void add(int fd, std::uint32_t events, FdCallback callback);

  /// Changes the events of a watched descriptor.
  void modify(int fd, std::uint32_t events);

  /// Stops watching. Drops events that the kernel has already reported.
  void remove(int fd);

  /// Runs `task` once on the loop's thread at the time `when` or later.
  TimerId add_timer(Deadline when, Task task);

  /// Cancels a timer. Has no effect if the timer has run or does not exist.
  void cancel_timer(TimerId timer);

  /// Waits for the first event until `deadline`, then handles all events that are ready.
  void run_once(Deadline deadline);

  /// Runs the loop until stop(). An earlier stop() ends run() after one iteration.
  void run();

  /// Runs `task` on the loop's thread, in the order of the post() calls. Any thread.
  void post(Task task);

  /// Ends a waiting run_once(). Any thread.
  void wake();

  /// Ends run(). Any thread.
  void stop();

 private:
  using TimerKey = std::pair<Deadline::Clock::time_point, TimerId>;

  void dispatch(std::uint64_t id, std::uint32_t events);
  void run_timers();
  void run_posts();

  Fd epoll_;
  Wakeup wakeup_;
  // Events carry this id instead of the descriptor, because the kernel soon reuses the number of a
  // closed descriptor.
  std::uint64_t next_id_ = 1;
  std::unordered_map<int, std::uint64_t> ids_;
  std::unordered_map<std::uint64_t, std::shared_ptr<FdCallback>> callbacks_;
  std::map<TimerKey, Task> timers_;
  std::unordered_map<TimerId, Deadline::Clock::time_point> timer_times_;
  bool is_stopped_ = false;

  Mutex mutex_;
  std::vector<Task> posts_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::net
