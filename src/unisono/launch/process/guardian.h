#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <span>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/signals.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Process name of the guardian, as `ps -C` and `pkill` show it.
inline constexpr const char* kGuardianName = "unisono-guard";

/// The small single-threaded process that is the parent of a node's ranks. The guardian starts
/// ranks on the agent's order, reports how ranks ended, and leaves no descendants behind when the
/// agent ends.
///
/// Signals go to the ranks' own processes, which may need descendants until the end. The remaining
/// descendants are then leftovers and are ended: the process group of a rank after that rank, all
/// others after the last rank.
///
/// be_guardian() owns the object for the life of the process. All functions run on the only thread
/// of the process; the kernel kills the ranks when that thread ends. An exception therefore ends
/// the guardian and the ranks.
class Guardian {
 public:
  /// Starts ranks as `path` with `argv`, as execve(2) takes them, and with the signal mask
  /// `signal_mask`.
  Guardian(Channel channel,
           const char* path,
           char* const* argv,
           const sigset_t& signal_mask,
           pid_t agent);

  /// Returns when the agent has ended and all descendants have ended.
  void run();

 private:
  struct Worker {
    int local_rank = 0;
    Fd pidfd = Fd();  // Not open without pidfds in the kernel.
    // Programs of a shell that were signalled together with the shell. The rank ends when the last
    // of these programs ends.
    std::set<pid_t> programs = {};
    std::optional<int> status = std::nullopt;  // Status of a shell that ended before its programs.
  };

  using Workers = std::map<pid_t, Worker>;

  [[nodiscard]] bool has_agent_ended() const;
  void on_channel();
  void start(const Spawn& order, std::span<const Fd> stdio);
  void watch_end(pid_t pid, Worker& worker);
  void signal_ranks(int signal_number);
  void begin_end();
  void end_leftovers();
  [[nodiscard]] Deadline last_moment(pid_t child) const;
  void kill_all();
  void reap_worker(pid_t pid);
  void on_reaped(pid_t pid, int status);
  void take_end(Workers::iterator worker, int status);
  void reap();

  Channel channel_;
  const char* path_;
  char* const* argv_;
  sigset_t signal_mask_;
  pid_t agent_;
  SignalFd signals_;
  net::EventLoop loop_;
  Workers workers_;
  bool child_ended_ = false;
  bool is_ending_ = false;  // The ranks have been ordered to end.
  bool rank_ended_ = false;
  // Time at which the process group of an ended rank is killed; ended_all_ is the time for all
  // other processes after the last rank.
  std::map<pid_t, Deadline> ended_groups_;
  Deadline ended_all_ = Deadline::never();
  std::set<pid_t> asked_;  // Leftovers that have received SIGTERM.
  net::EventLoop::TimerId leftover_timer_ = 0;
};

}  // namespace unisono::launch
