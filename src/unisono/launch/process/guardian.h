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

/// The name of its process, as `ps -C` and `pkill` know it.
inline constexpr const char* kGuardianName = "unisono-guard";

/// The small single-threaded process that is the parent of a node's ranks: starts them when told
/// to, reports how they ended, and leaves none of their descendants behind when the agent is gone.
///
/// Signals go to the ranks' own processes, which may need their descendants until they end. Then
/// the descendants are leftovers, and are ended: those of the rank's process group after the rank,
/// others after the last rank.
class Guardian {
 public:
  /// Its ranks are `path` with `argv`, as execve(2) takes it, and begin with this signal mask.
  Guardian(Channel channel,
           const char* path,
           char* const* argv,
           const sigset_t& signal_mask,
           pid_t agent);

  /// Returns when the agent is gone and all descendants with it.
  void run();

 private:
  struct Worker {
    int local_rank = 0;
    Fd pidfd = Fd();  // Not open where the kernel has none.
    // Programs of a shell that were signalled with it. The rank lasts until the last of them ends.
    std::set<pid_t> programs = {};
    std::optional<int> status = std::nullopt;  // The shell's, once it has ended before them.
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
  bool is_ending_ = false;  // The ranks were told to end.
  bool rank_ended_ = false;
  // Until when the process group of an ended rank may last, and after the last rank all others.
  std::map<pid_t, Deadline> ended_groups_;
  Deadline ended_all_ = Deadline::never();
  std::set<pid_t> asked_;  // Leftovers that have got their SIGTERM.
  net::EventLoop::TimerId leftover_timer_ = 0;
};

}  // namespace unisono::launch
