#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Returns the direct children of this process, zombies included.
[[nodiscard]] std::vector<pid_t> list_children();

/// Returns the programs that `shell` runs, directly or through other shells: a signal to the shell
/// is meant for these programs. Returns an empty set if the process is no shell or handles SIGTERM
/// itself.
[[nodiscard]] std::set<pid_t> programs_of_shell(pid_t shell);

/// Receives each reaped process, with the status of wait(2).
using OnReaped = std::function<void(pid_t pid, int status)>;

/// Reaps the children that have ended, without blocking. Returns false if this process has no
/// children left.
bool reap_children(const OnReaped& on_reaped);

/// Waits for a SIGCHLD, which must be blocked, for 10 ms at most.
void wait_for_child_signal();

/// Kills all descendants of this process, which must be a subreaper, except the children in
/// `spared` and the descendants of these. Returns the processes that are still present at
/// `deadline`.
///
/// Only direct children receive signals: a process ID of a child cannot be reused before this
/// process reaps the child, and the children of a dead child become children of this process. A
/// parent is killed before the children, so that a killed process is not restarted. Requires that
/// SIGCHLD is blocked.
std::vector<pid_t> kill_descendants(const std::set<pid_t>& spared,
                                    Deadline deadline,
                                    const OnReaped& on_reaped);

/// Reports that ranks have ended, as the kernel sees it, independently of the guardian. Only the
/// guardian can report the exit status. Without pidfds in the kernel, no rank is watched.
///
/// WorkerGroup owns the object. All functions and the callback run on the loop's thread.
class EndWatch {
 public:
  /// `on_end` is called on the loop after each end. The loop must outlive the object.
  EndWatch(net::EventLoop& loop, std::function<void()> on_end);
  ~EndWatch();

  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;
  EndWatch(EndWatch&&) = delete;
  EndWatch& operator=(EndWatch&&) = delete;

  /// Watches the process of `worker`.
  void add(std::size_t worker, pid_t pid);

  /// Records that the guardian has reported the end of `worker`.
  void mark_reported(std::size_t worker);

  /// Returns the ranks that have ended without a report of the guardian, in the order of their
  /// ends.
  [[nodiscard]] const std::vector<std::size_t>& unreported() const { return unreported_; }

  [[nodiscard]] bool is_unreported(std::size_t worker) const;

 private:
  void remove(std::size_t worker);

  net::EventLoop& loop_;
  std::function<void()> on_end_;
  std::map<std::size_t, Fd> pidfds_;
  std::vector<std::size_t> unreported_;
};

}  // namespace unisono::launch
