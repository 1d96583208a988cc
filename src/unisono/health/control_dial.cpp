#include "unisono/health/control_dial.h"

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
#include "unisono/transport/rank_address.h"
#include "unisono/transport/tcp/opening.h"

namespace unisono::health {

ControlDial::ControlDial(net::EventLoop& loop,
                         transport::RankAddress member,
                         const std::string& secret,
                         const net::HelloInfo& mine,
                         Deadline until,
                         Done done)
    : loop_(loop),
      member_(std::move(member)),
      opening_(tcp::dial(member_, secret, mine)),
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
    socket = opening_->progress();
    if (!socket.is_open() && !until_.has_passed()) {
      watch();
      return;
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
  const pollfd next = opening_->poll();
  timer_ = loop_.add_timer(earlier(opening_->next_step(), until_), [this] { advance(); });
  try {
    if (next.fd >= 0) {
      const std::uint32_t events = next.events == POLLIN ? EPOLLIN : EPOLLOUT;
      loop_.add(next.fd, events, [this](std::uint32_t) { advance(); });
      fd_ = next.fd;
    }
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
