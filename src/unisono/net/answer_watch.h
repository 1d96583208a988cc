#pragma once

#include <netinet/tcp.h>

#include <chrono>
#include <optional>

#include "unisono/base/deadline.h"

namespace unisono::net {

/// Sees when what was sent on a TCP connection gets no answer for too long. TCP_USER_TIMEOUT would,
/// too, but also ends a connection whose other side answers that it has no room: one that just does
/// not read yet. To be asked while somebody waits; looks about 20 times within its patience.
class AnswerWatch {
 public:
  explicit AnswerWatch(std::chrono::milliseconds patience) : patience_(patience) {}

  /// Whether bytes were sent, or a question whether there is room, after which nothing has come
  /// from the other side for the patience. False for what is no TCP socket.
  [[nodiscard]] bool is_silent(int fd) noexcept;

  using Clock = std::chrono::steady_clock;

  /// The same of what the kernel says of the connection `now`. Time in which nobody looked does not
  /// count: the machine may have stood still.
  [[nodiscard]] bool is_silent(const tcp_info& info, Clock::time_point now) noexcept;

 private:
  [[nodiscard]] std::chrono::milliseconds interval() const;

  std::chrono::milliseconds patience_;
  Deadline next_look_ = Deadline::after(std::chrono::seconds(0));
  Clock::time_point last_look_;
  // Nothing has come since this look, at which there was something to answer.
  std::optional<Clock::time_point> unanswered_since_;
};

}  // namespace unisono::net
