#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/hosts/remote_host.h"
#include "unisono/launch/hosts/run_on_hosts.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// Runs a job on several machines, in the launcher that the user called.
///
/// run_on_hosts() owns the object for the duration of the job. All functions run on the thread that
/// created the object, which also runs the event loop. The first failure of a host or of the output
/// ends all hosts; finish() reports it as the exit code.
class HostsRun {
 public:
  /// Catches signals from now on. `request` is copied. Throws Error(kSystem).
  explicit HostsRun(const HostsRequest& request);

  /// Starts a launcher with `program` and sends `begin` to it. `is_remote` is true if a remote
  /// shell leads to the host. Throws ProgramError, Error(kSystem).
  void start(const Program& program, Begin begin, bool is_remote);

  /// Waits until all hosts have ended, shows the cause of a failure, and returns the exit code.
  int finish();

 private:
  // A host with the deadlines of its launcher.
  struct Member {
    Program program;
    Begin begin;
    bool is_remote;
    std::unique_ptr<RemoteHost> host = nullptr;
    Deadline ready_by = Deadline::never();
    Deadline gone_by = Deadline::never();
    bool is_given_up = false;
    // Set after a loss: the latest time for the launcher's return.
    Deadline back_by = Deadline::never();
    Deadline again_at = Deadline::never();  // Time at which the launcher is started again.
  };

  void on_signal();
  void on_output(const Output& output);
  void connect(Member& member);
  /// Examines the state of a host: starts it again, reports its failure or loss, and enforces its
  /// deadlines.
  void look(Member& member);
  [[nodiscard]] bool may_come_back(const Member& member) const;
  /// Schedules another start of a lost launcher, and shows a message.
  void start_later(Member& member);
  /// Starts a lost launcher again once the delay is over, or reports the final loss.
  void start_again(Member& member);
  /// Records the final loss of a host, which ends the job.
  void lose(Member& member, const std::string& why);
  void fail(Cause cause);
  /// Kills the local process of a host that has not ended in time.
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
  std::optional<Cause> loss_;  // A lost host, which takes precedence over reports of other hosts.
  std::optional<Cause> cause_;
  int n_losses_ = 0;  // Losses of hosts that may come back.
  Deadline all_gone_by_ = Deadline::never();
  bool is_told_to_end_ = false;  // A signal has ended the job.
  bool is_paused_ = false;
  bool is_flushing_ = false;
  Deadline flushed_by_ = Deadline::never();
};

}  // namespace unisono::launch::hosts
