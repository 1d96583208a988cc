#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/hosts/remote_host.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// A job on several machines, as the launcher that the user called sees it.
class HostsRun {
 public:
  explicit HostsRun(const HostsRequest& request);

  /// Starts a host's launcher with `program`, which is told `begin`.
  void start(const Program& program, Begin begin, bool is_remote);

  /// Waits for the end of all, says what the cause of a failure was, and returns the exit code.
  int finish();

 private:
  // A host, and until when something has to have come of it.
  struct Member {
    Program program;
    Begin begin;
    bool is_remote;
    std::unique_ptr<RemoteHost> host = nullptr;
    Deadline ready_by = Deadline::never();
    Deadline gone_by = Deadline::never();
    bool is_given_up = false;
    Deadline back_by = Deadline::never();   // Once it was lost.
    Deadline again_at = Deadline::never();  // Is when its launcher is started again.
  };

  void on_signal();
  void on_output(const Output& output);
  void connect(Member& member);
  void look(Member& member);
  [[nodiscard]] bool may_come_back(const Member& member) const;
  void start_later(Member& member);
  void start_again(Member& member);
  void lose(Member& member, const std::string& why);
  void fail(Cause cause);
  void give_up(Member& member);
  void throttle();
  void flush();
  void say(const std::string& text);
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Deadline deadline() const;
  [[nodiscard]] Deadline end_deadline() const;

  HostsRequest request_;
  net::EventLoop loop_;
  SignalFd signals_;
  Sinks sinks_;
  std::vector<Member> members_;
  std::optional<Cause> loss_;  // A host that is lost: nothing that others say comes before it.
  std::optional<Cause> cause_;
  int n_losses_ = 0;  // Of hosts that may come back.
  Deadline all_gone_by_ = Deadline::never();
  bool is_told_to_end_ = false;  // By a signal.
  bool is_paused_ = false;
  bool is_flushing_ = false;
  Deadline flushed_by_ = Deadline::never();
};

}  // namespace unisono::launch::hosts
