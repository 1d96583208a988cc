#include "unisono/launch/output/sink.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/poll.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "unisono/base/config.h"

namespace unisono::launch {
namespace {

// A pipe that poll(2) reports as writable takes this much without blocking.
constexpr std::size_t kPieceBytes = 4096;

// Source: no-color.org, and terminfo's name of a terminal without capabilities.
bool wants_colour(const Environment& environment) {
  return environment("NO_COLOR").value_or("").empty() &&
         environment("TERM").value_or("dumb") != "dumb";
}

}  // namespace

FdSink::FdSink(int fd, net::EventLoop& loop, OnError on_error)
    : fd_(fd),
      loop_(loop),
      on_error_(std::move(on_error)),
      is_terminal_(::isatty(fd) == 1),
      has_colour_(is_terminal_ && wants_colour(process_environment())) {}

FdSink::~FdSink() {
  unwatch();
}

std::string FdSink::place() const {
  struct stat status{};
  return ::fstat(fd_, &status) == 0 ? fmt::format("{}:{}", status.st_dev, status.st_ino) : "";
}

void FdSink::append(std::string_view text) {
  if (!failed_) {
    buffer_ += text;
  }
}

bool FdSink::is_ready() const {
  pollfd ready{fd_, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

void FdSink::flush() {
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

void FdSink::watch() {
  if (!is_watched_) {
    loop_.add(fd_, EPOLLOUT, [this](std::uint32_t /*events*/) { flush(); });
    is_watched_ = true;
  }
}

void FdSink::unwatch() {
  if (is_watched_) {
    loop_.remove(fd_);
    is_watched_ = false;
  }
}

void FdSink::fail(int error_number) {
  failed_ = true;
  buffer_.clear();
  written_ = 0;
  unwatch();
  on_error_(error_number);
}

Sinks standard_sinks(net::EventLoop& loop,
                     std::function<void(const std::string& what, int error_number)> on_error) {
  const auto report = std::make_shared<decltype(on_error)>(std::move(on_error));
  return {
      .out = std::make_unique<FdSink>(
          STDOUT_FILENO, loop, [report](int error_number) { (*report)("stdout", error_number); }),
      .err = std::make_unique<FdSink>(
          STDERR_FILENO, loop, [report](int error_number) { (*report)("stderr", error_number); })};
}

}  // namespace unisono::launch
