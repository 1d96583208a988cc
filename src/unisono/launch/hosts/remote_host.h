#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/launch/hosts/link.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/output/lines.h"
#include "unisono/launch/program.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// A host of a job, with the local process that leads to its launcher: the remote shell, or the
/// launcher itself if the host is this machine.
///
/// HostsRun owns the object; a lost launcher that is started again gets a new one. All functions
/// and events run on the loop's thread. A loss of the host is a state (has_lost_link(),
/// describe_loss()), not an exception.
class RemoteHost {
 public:
  struct Events {
    std::function<void(const Output& output)> on_output;
    /// A line that the remote shell, or a program that runs before the launcher, has written.
    std::function<void(const std::string& line)> on_line;
  };

  /// `loop` must outlive the object. A callback in `events` must not destroy the object.
  RemoteHost(net::EventLoop& loop, Begin begin, Events events);

  ~RemoteHost();

  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;
  RemoteHost(RemoteHost&&) = delete;
  RemoteHost& operator=(RemoteHost&&) = delete;

  /// Starts the process, which reads orders from stdin, with `signal_mask`; in a new process group
  /// if `is_apart`. Throws ProgramError, Error(kSystem).
  void start(const Program& program, const sigset_t& signal_mask, bool is_apart);

  void send(const Message& message);
  void pause(bool is_paused);

  /// Reaps the process if it has ended. Called after each SIGCHLD.
  void reap();

  /// Kills and reaps the process, and closes the connection. Messages that were not read are lost.
  void kill();

  [[nodiscard]] const std::string& name() const { return begin_.label; }

  /// Returns true once the launcher on the host has reported that it runs.
  [[nodiscard]] bool is_ready() const { return is_ready_; }

  /// Returns true if the connection is lost; the process may still run.
  [[nodiscard]] bool has_lost_link() const { return link_ && link_->is_lost(); }

  /// Returns true if the process has ended and no message can follow.
  [[nodiscard]] bool is_over() const { return status_ && (!link_ || link_->is_lost()); }

  /// Returns how the job ended on the host; std::nullopt if the host has not reported an end (yet).
  [[nodiscard]] const std::optional<Ended>& ended() const { return ended_; }

  /// Returns the error message for a launcher that ended or was lost without a report: the command,
  /// its exit status or the problem of the connection, and the last lines.
  [[nodiscard]] std::string describe_loss() const;

  /// Returns the exit code of the lost process; 1 if it is unknown, 0, or 255, which ssh returns
  /// without a connection.
  [[nodiscard]] int loss_code() const;

 private:
  void take(const Message& message);
  void on_error_text();
  void take_text(std::string_view text);
  void take_line(std::string_view line);
  void finish_errors();

  net::EventLoop& loop_;
  Begin begin_;
  Events events_;
  std::string command_;
  pid_t pid_ = -1;
  Fd errors_;
  LineSplitter error_lines_;
  Tail tail_;
  std::unique_ptr<HostLink> link_;
  bool is_ready_ = false;
  std::optional<Ended> ended_;
  std::optional<int> status_;
  std::string problem_;  // Problem of the connection.
};

}  // namespace unisono::launch::hosts
