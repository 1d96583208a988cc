#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/messages.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// Sends and receives messages over two pipes. A program between the two sides, such as a remote
/// shell, may write lines of its own before the greeting.
///
/// The owner is a RemoteHost or an Uplink. All functions and events run on the loop's thread. A
/// broken connection, a malformed message and missing heartbeats are reported once, by `on_lost`.
class HostLink {
 public:
  struct Events {
    std::function<void(Message message)> on_message;
    /// Text that arrived before the greeting of the other side.
    std::function<void(std::string_view text)> on_noise;
    /// Called at most once, and no event follows. Not called from the constructor or from send().
    std::function<void(const std::string& why)> on_lost;
  };

  /// `loop` must outlive the object. A callback in `events` must not destroy the object.
  HostLink(net::EventLoop& loop, Fd in, Fd out, const KeepAlive& keep_alive, Events events);

  ~HostLink();

  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;
  HostLink(HostLink&&) = delete;
  HostLink& operator=(HostLink&&) = delete;

  void send(const Message& message);

  /// Stops or resumes reading, so that the other side waits as for a slow reader. A paused link is
  /// not reported as lost.
  void pause(bool is_paused);

  /// Returns the number of bytes that the pipe has not accepted yet.
  [[nodiscard]] std::size_t backlog() const { return output_.size(); }

  [[nodiscard]] bool is_lost() const { return !in_.is_open(); }

 private:
  void on_readable();
  void take(std::string_view bytes);
  void take_messages();
  void beat();
  void flush();
  void lose(const std::string& why);

  net::EventLoop& loop_;
  Fd in_;
  Fd out_;
  KeepAlive keep_alive_;
  Events events_;
  std::string noise_;  // Text that may be the beginning of the greeting.
  bool is_greeted_ = false;
  bool is_paused_ = false;
  FrameReader input_{kMaxMessageBytes};
  std::vector<std::byte> output_;
  bool is_writing_ = false;  // The loop waits until the pipe takes more.
  Deadline::Clock::time_point heard_;
  net::EventLoop::TimerId timer_ = 0;
};

}  // namespace unisono::launch::hosts
