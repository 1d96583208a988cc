#include "unisono/launch/poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::launch {

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.is_open()) {
    throw system_error("epoll_create1", errno);
  }
}

bool Poller::add(int fd, std::uint32_t events, Callback callback) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    if (errno == EPERM) {
      return false;
    }
    throw system_error("epoll_ctl", errno);
  }
  callbacks_[fd] = std::make_shared<Callback>(std::move(callback));
  return true;
}

void Poller::remove(int fd) {
  if (callbacks_.erase(fd) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

void Poller::run_once(Deadline deadline) {
  std::vector<epoll_event> events(std::max<std::size_t>(callbacks_.size(), 1));
  const int n_ready = ::epoll_wait(
      epoll_.get(), events.data(), static_cast<int>(events.size()), deadline.poll_timeout_ms());
  if (n_ready < 0) {
    if (errno == EINTR) {
      return;
    }
    throw system_error("epoll_wait", errno);
  }
  events.resize(static_cast<std::size_t>(n_ready));
  for (const epoll_event& event : events) {
    const auto found = callbacks_.find(event.data.fd);
    if (found != callbacks_.end()) {
      const std::shared_ptr<Callback> callback = found->second;
      (*callback)(event.events);
    }
  }
}

}  // namespace unisono::launch
