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
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/output/line_splitter.h"
#include "unisono/launch/output/tail.h"
#include "unisono/launch/program.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// A host of a job, with the process that leads to its launcher: the remote shell, or the launcher
/// itself where the host is this machine. Belongs to the loop's thread.
class RemoteHost {
 public:
  struct Events {
    std::function<void(const Output& output)> on_output;
    /// A line of the remote shell, or of what runs in front of the launcher there.
    std::function<void(const std::string& line)> on_line;
  };

  /// `loop` must outlive the object, and `events` must not destroy it.
  RemoteHost(net::EventLoop& loop, Begin begin, Events events);

  ~RemoteHost();

  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;
  RemoteHost(RemoteHost&&) = delete;
  RemoteHost& operator=(RemoteHost&&) = delete;

  /// Starts the process, which is to read its orders from stdin, with `signal_mask`, and apart
  /// from the terminal where it `is_apart`. Throws ProgramError, Error(kSystem).
  void start(const Program& program, const sigset_t& signal_mask, bool is_apart);

  void send(const Message& message);
  void pause(bool is_paused);

  /// To be called when a child of this process may have ended.
  void reap();

  /// Ends the process at once, and with it what is known of the host.
  void kill();

  [[nodiscard]] const std::string& name() const { return begin_.label; }

  /// The launcher there has said that it runs.
  [[nodiscard]] bool is_ready() const { return is_ready_; }

  /// Nothing more is heard, though the process may still run.
  [[nodiscard]] bool has_lost_link() const { return link_ && link_->is_lost(); }

  /// The process has ended, and nothing more is to come.
  [[nodiscard]] bool is_over() const { return status_ && (!link_ || link_->is_lost()); }

  /// How the job ended there; nothing where that was not heard (yet).
  [[nodiscard]] const std::optional<Ended>& ended() const { return ended_; }

  /// Where the launcher there ended, or is lost, without a word of how: what is known of it.
  [[nodiscard]] std::string describe_loss() const;

  /// What a shell gives for that.
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
  std::unique_ptr<Link> link_;
  bool is_ready_ = false;
  std::optional<Ended> ended_;
  std::optional<int> status_;
  std::string problem_;  // Of the connection.
};

}  // namespace unisono::launch::hosts
