#include "unisono/launch/process/end_watch.h"

#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/launch/process/children.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

EndWatch::EndWatch(net::EventLoop& loop, std::function<void()> on_end)
    : loop_(loop), on_end_(std::move(on_end)) {}

EndWatch::~EndWatch() {
  while (!pidfds_.empty()) {
    remove(pidfds_.begin()->first);
  }
}

void EndWatch::add(std::size_t worker, pid_t pid) {
  Fd pidfd = open_pidfd(pid);
  if (!pidfd.is_open()) {
    return;
  }
  loop_.add(pidfd.get(), EPOLLIN, [this, worker](std::uint32_t /*events*/) {
    remove(worker);
    unreported_.push_back(worker);
    on_end_();
  });
  pidfds_.emplace(worker, std::move(pidfd));
}

void EndWatch::mark_reported(std::size_t worker) {
  remove(worker);
  std::erase(unreported_, worker);
}

bool EndWatch::is_unreported(std::size_t worker) const {
  return std::ranges::find(unreported_, worker) != unreported_.end();
}

void EndWatch::remove(std::size_t worker) {
  const auto found = pidfds_.find(worker);
  if (found != pidfds_.end()) {
    loop_.remove(found->second.get());
    pidfds_.erase(found);
  }
}

}  // namespace unisono::launch
