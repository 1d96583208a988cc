#include "unisono/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "unisono/base/error.h"

namespace unisono::net {

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_.is_open()) {
    throw descriptor_error("creating an eventfd", errno);
  }
}

void Wakeup::wake() const noexcept {
  constexpr std::uint64_t kOne = 1;
  // The write fails only if the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t n_written = ::write(fd_.get(), &kOne, sizeof(kOne));
}

void Wakeup::clear() const noexcept {
  std::uint64_t count = 0;
  // The read fails only if the counter is 0.
  [[maybe_unused]] const ssize_t n_read = ::read(fd_.get(), &count, sizeof(count));
}

namespace {

constexpr std::uint64_t kWakeupId = 0;

void control(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) {
    throw system_error("watch a file descriptor by epoll", errno);
  }
}

}  // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.is_open()) {
    throw system_error("epoll_create1", errno);
  }
  control(epoll_.get(), EPOLL_CTL_ADD, wakeup_.fd(), EPOLLIN, kWakeupId);
}

void EventLoop::add(int fd, std::uint32_t events, FdCallback callback) {
  UNISONO_CHECK(!ids_.contains(fd), "a file descriptor is watched twice");
  const std::uint64_t id = next_id_++;
  try {
    ids_.emplace(fd, id);
    callbacks_.emplace(id, std::make_shared<FdCallback>(std::move(callback)));
    control(epoll_.get(), EPOLL_CTL_ADD, fd, events, id);
  } catch (...) {
    ids_.erase(fd);
    callbacks_.erase(id);
    throw;
  }
}

void EventLoop::modify(int fd, std::uint32_t events) {
  const auto found = ids_.find(fd);
  UNISONO_CHECK(found != ids_.end(), "a file descriptor to modify is not watched");
  control(epoll_.get(), EPOLL_CTL_MOD, fd, events, found->second);
}

void EventLoop::remove(int fd) {
  const auto found = ids_.find(fd);
  UNISONO_CHECK(found != ids_.end(), "a file descriptor to remove is not watched");
  callbacks_.erase(found->second);
  ids_.erase(found);
  control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, 0);
}

EventLoop::TimerId EventLoop::add_timer(Deadline when, Task task) {
  const TimerId id = next_id_++;
  timer_times_.emplace(id, when.time());
  try {
    timers_.emplace(TimerKey(when.time(), id), std::move(task));
  } catch (...) {
    timer_times_.erase(id);
    throw;
  }
  return id;
}

void EventLoop::cancel_timer(TimerId timer) {
  const auto found = timer_times_.find(timer);
  if (found != timer_times_.end()) {
    timers_.erase(TimerKey(found->second, timer));
    timer_times_.erase(found);
  }
}

void EventLoop::run_once(Deadline deadline) {
  if (!timers_.empty()) {
    deadline = earlier(deadline, Deadline::at(timers_.begin()->first.first));
  }
  constexpr std::size_t kMaxEvents = 64;
  std::array<epoll_event, kMaxEvents> events{};
  const int n = ::epoll_wait(
      epoll_.get(), events.data(), static_cast<int>(events.size()), deadline.poll_timeout_ms());
  if (n < 0 && errno != EINTR) {
    throw system_error("epoll_wait", errno);
  }
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeupId) {
      run_posts();
    } else {
      dispatch(event.data.u64, event.events);
    }
  }
  run_timers();
}

void EventLoop::run() {
  while (!std::exchange(is_stopped_, false)) {
    run_once(Deadline::never());
  }
}

void EventLoop::post(Task task) {
  {
    const MutexLock lock(mutex_);
    posts_.push_back(std::move(task));
  }
  wake();
}

void EventLoop::wake() {
  wakeup_.wake();
}

void EventLoop::stop() {
  post([this] { is_stopped_ = true; });
}

void EventLoop::dispatch(std::uint64_t id, std::uint32_t events) {
  const auto found = callbacks_.find(id);
  if (found == callbacks_.end()) {
    return;
  }
  // The copy keeps the callback alive, because a callback may remove itself.
  const std::shared_ptr<FdCallback> callback = found->second;
  (*callback)(events);
}

void EventLoop::run_timers() {
  const Deadline::Clock::time_point now = Deadline::Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::run_posts() {
  wakeup_.clear();
  std::vector<Task> posts;
  {
    const MutexLock lock(mutex_);
    posts.swap(posts_);
  }
  for (const Task& task : posts) {
    task();
  }
}

}  // namespace unisono::net
