#include "unisono/launch/output/sink.h"

#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "unisono/net/event_loop.h"

namespace unisono::launch {
namespace {

// A pipe that poll(2) calls writable takes this much without waiting.
constexpr std::size_t kPieceBytes = 4096;

}  // namespace

Sink::Sink(int fd, net::EventLoop& loop, OnError on_error)
    : fd_(fd), loop_(loop), on_error_(std::move(on_error)), is_terminal_(::isatty(fd) == 1) {}

Sink::~Sink() {
  unwatch();
}

void Sink::append(std::string_view text) {
  if (!failed_) {
    buffer_ += text;
  }
}

bool Sink::is_ready() const {
  pollfd ready{fd_, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

void Sink::flush() {
  while (backlog() > 0) {
    if (!is_ready()) {
      watch();
      return;
    }
    const std::size_t n_bytes = std::min(backlog(), kPieceBytes);
    const ssize_t n_written = ::write(fd_, buffer_.data() + written_, n_bytes);
    if (n_written >= 0) {
      written_ += static_cast<std::size_t>(n_written);
    } else if (errno == EAGAIN) {
      watch();
      return;
    } else if (errno != EINTR) {
      fail(errno);
      return;
    }
  }
  buffer_.clear();
  written_ = 0;
  unwatch();
}

void Sink::watch() {
  if (!is_watched_) {
    loop_.add(fd_, EPOLLOUT, [this](std::uint32_t /*events*/) { flush(); });
    is_watched_ = true;
  }
}

void Sink::unwatch() {
  if (is_watched_) {
    loop_.remove(fd_);
    is_watched_ = false;
  }
}

void Sink::fail(int error_number) {
  failed_ = true;
  buffer_.clear();
  written_ = 0;
  unwatch();
  on_error_(error_number);
}

}  // namespace unisono::launch
