#pragma once

#include <functional>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

/// A connection to a rank that is being opened, on the event loop's thread.
class ControlDial {
 public:
  /// The socket after its hello, or why there is none; neither where time is up. Once, and last: it
  /// may end the dial.
  using Done = std::function<void(Fd socket, const std::optional<Error>& problem)>;

  /// The loop and `secret` outlive it. Throws Error where there is no socket.
  ControlDial(net::EventLoop& loop,
              transport::RankAddress member,
              const std::string& secret,
              net::HelloInfo mine,
              Deadline until,
              Done done);
  ~ControlDial();

  ControlDial(const ControlDial&) = delete;
  ControlDial& operator=(const ControlDial&) = delete;
  ControlDial(ControlDial&&) = delete;
  ControlDial& operator=(ControlDial&&) = delete;

  /// Somebody waits for it until then.
  void extend(Deadline until) { until_ = until; }

 private:
  void advance();
  void watch();
  void unwatch();

  net::EventLoop& loop_;
  transport::RankAddress member_;
  net::HelloInfo mine_;
  transport::Dial dial_;
  Deadline until_;
  Done done_;
  int fd_ = -1;  // That the loop watches.
  net::EventLoop::TimerId timer_ = 0;
};

}  // namespace unisono::health
