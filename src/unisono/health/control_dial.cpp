#include "unisono/health/control_dial.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

ControlDial::ControlDial(net::EventLoop& loop,
                         transport::RankAddress member,
                         const std::string& secret,
                         net::HelloInfo mine,
                         Deadline until,
                         Done done)
    : loop_(loop),
      member_(std::move(member)),
      mine_(std::move(mine)),
      dial_(member_, secret, mine_, transport::Dial::Start::kNow),
      until_(until),
      done_(std::move(done)) {
  watch();
}

ControlDial::~ControlDial() {
  unwatch();
}

void ControlDial::advance() {
  unwatch();  // The next step may be another socket's.
  Fd socket;
  std::optional<Error> problem;
  try {
    switch (dial_.progress()) {
      case transport::Dial::Outcome::kNone:
        if (!until_.has_passed()) {
          watch();
          return;
        }
        break;
      case transport::Dial::Outcome::kWelcomed:
        socket = dial_.take();
        break;
      case transport::Dial::Outcome::kTurnedAway:
        problem.emplace(
            ErrorCode::kPeerLost,
            fmt::format("{} takes no connection any more: it is about to leave, or is gone",
                        member_.name));
        break;
      case transport::Dial::Outcome::kRefused:
        problem = transport::nobody_listens(member_);
        break;
    }
  } catch (const Error& error) {
    problem = error;
  } catch (const std::exception& error) {
    problem.emplace(ErrorCode::kSystem, error.what());
  }
  const Done done = std::move(done_);
  done(std::move(socket), problem);
}

void ControlDial::watch() {
  timer_ = loop_.add_timer(earlier(dial_.next_try(), until_), [this] { advance(); });
  if (!dial_.is_trying()) {
    return;
  }
  try {
    const pollfd next = dial_.poll();
    const std::uint32_t events = next.events == POLLIN ? EPOLLIN : EPOLLOUT;
    loop_.add(next.fd, events, [this](std::uint32_t) { advance(); });
    fd_ = next.fd;
  } catch (...) {
    unwatch();
    throw;
  }
}

void ControlDial::unwatch() {
  loop_.cancel_timer(timer_);
  if (fd_ >= 0) {
    loop_.remove(std::exchange(fd_, -1));
  }
}

}  // namespace unisono::health
