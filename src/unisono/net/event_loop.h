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
#include "unisono/net/wakeup.h"

namespace unisono::net {

/// Calls back when file descriptors are ready, timers are due, or another thread asks for it.
///
/// Everything but post(), wake() and stop() belongs to the thread that runs the loop. Callbacks
/// may add, change and remove descriptors and timers, their own included; they do not run the loop.
/// What one throws ends run_once() and run(), which may be called again: what descriptors are ready
/// for is then still to be handled; a timer that threw is over, and so are the posts beside one.
class EventLoop {
 public:
  /// Receives epoll(7)'s event bits.
  using FdCallback = std::function<void(std::uint32_t events)>;
  using Task = std::function<void()>;

  /// Names a timer; 0 is none.
  using TimerId = std::uint64_t;

  EventLoop();

  /// Watches `fd` for `events` (EPOLLIN, EPOLLOUT; errors always), level-triggered. Does not own
  /// it: remove() comes before close(). Where it throws nothing has changed.
  void add(int fd, std::uint32_t events, FdCallback callback);

  /// Changes the events of a watched descriptor.
  void modify(int fd, std::uint32_t events);

  /// Stops watching. An event that the kernel already reported is dropped.
  void remove(int fd);

  /// Runs `task` once, when `when` has come and the loop runs.
  TimerId add_timer(Deadline when, Task task);

  /// Forgets a timer; one that ran or never was is no error.
  void cancel_timer(TimerId timer);

  /// Handles what is ready, waiting for the first thing until `deadline`.
  void run_once(Deadline deadline);

  /// Runs until stop(). A stop() that came before ends it at once.
  void run();

  /// Runs `task` on the loop's thread, in the order of the posts. Any thread.
  void post(Task task);

  /// Ends a run_once() that waits. Any thread.
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
  // Events carry the id, not the descriptor: the number of a closed descriptor comes back soon.
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
