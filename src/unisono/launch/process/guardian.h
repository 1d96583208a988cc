#pragma once

#include <sys/types.h>

#include <map>
#include <span>

#include "unisono/base/fd.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/signals.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// The name of its process, as `ps -C` and `pkill` know it.
inline constexpr const char* kGuardianName = "unisono-guard";

/// The small single-threaded process that is the parent of a node's ranks: starts them when told
/// to, reports how they ended, and leaves none of their descendants behind when the agent is gone.
class Guardian {
 public:
  /// Its ranks are `path` with `argv`, as execve(2) takes it.
  Guardian(Channel channel, const char* path, char* const* argv, pid_t agent);

  /// Returns when the agent is gone and all descendants with it.
  void run();

 private:
  struct Worker {
    int local_rank;
    Fd pidfd;  // Not open where the kernel has none.
  };

  [[nodiscard]] bool has_agent_ended() const;
  void on_channel();
  void start(const Spawn& order, std::span<const Fd> stdio);
  void watch_end(pid_t pid, Worker& worker);
  void signal_all(int signal_number);
  void kill_all();
  void reap_worker(pid_t pid);
  void on_reaped(pid_t pid, int status);
  void reap();

  Channel channel_;
  const char* path_;
  char* const* argv_;
  pid_t agent_;
  SignalFd signals_;
  net::EventLoop loop_;
  std::map<pid_t, Worker> workers_;
  bool child_ended_ = false;
};

}  // namespace unisono::launch
