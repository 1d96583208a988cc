#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/keep_alive.h"
#include "unisono/launch/message_frames.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// Messages over two pipes, through whatever lies between: a remote shell that may first write
/// lines of its own. Belongs to the loop's thread.
class Link {
 public:
  struct Events {
    std::function<void(Message message)> on_message;
    /// What came before the other side began to speak.
    std::function<void(std::string_view text)> on_noise;
    /// At most once, and nothing follows it. Not called from the constructor or from send().
    std::function<void(const std::string& why)> on_lost;
  };

  /// `loop` must outlive the object, and `events` must not destroy it.
  Link(net::EventLoop& loop, Fd in, Fd out, const KeepAlive& keep_alive, Events events);

  ~Link();

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  Link(Link&&) = delete;
  Link& operator=(Link&&) = delete;

  void send(const Message& message);

  /// Lets the other side wait, as it would for a slow reader, or no more. It can't be lost
  /// meanwhile.
  void pause(bool is_paused);

  /// Bytes that the pipe has not taken yet.
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
  std::string noise_;  // That may be the greeting's beginning.
  bool is_greeted_ = false;
  bool is_paused_ = false;
  FrameReader input_{kMaxMessageBytes};
  std::vector<std::byte> output_;
  bool is_writing_ = false;  // The loop waits until the pipe takes more.
  Deadline::Clock::time_point heard_;
  net::EventLoop::TimerId timer_ = 0;
};

}  // namespace unisono::launch::hosts
