#include "unisono/net/io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"

namespace unisono::net {
namespace {

// Time limit of the blocking recv(2) in read_by(), as a socket option.
constexpr std::chrono::milliseconds kPatience{50};

IoResult failure(int error_number) noexcept {
  if (error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR) {
    return {.status = IoStatus::kWouldBlock};
  }
  return {.status = IoStatus::kError, .error_number = error_number};
}

IoResult receive(int fd, std::span<std::byte> bytes, int flags) noexcept {
  const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), flags);
  if (n < 0) {
    return failure(errno);
  }
  if (n == 0 && !bytes.empty()) {
    return {.status = IoStatus::kClosed};
  }
  return {.n_bytes = static_cast<std::size_t>(n)};
}

// Progress of a transfer, for error messages. A total of 0 means an unknown size.
struct Progress {
  const char* verb = "";
  std::size_t done = 0;
  std::size_t total = 0;
};

std::string describe(const Progress& progress) {
  return progress.total == 0
             ? ""
             : fmt::format("; {} of {} bytes {}", progress.done, progress.total, progress.verb);
}

[[noreturn]] void throw_lost(const std::string& peer, const IoResult& result, Progress progress) {
  const std::string how =
      result.status == IoStatus::kClosed
          ? "closed the connection"
          : "connection lost: " + std::generic_category().message(result.error_number) +
                fmt::format(" (errno {})", result.error_number);
  throw Error(ErrorCode::kPeerLost, fmt::format("{}: {}{}", peer, how, describe(progress)));
}

void wait_or_throw(
    int fd, short events, Deadline deadline, const std::string& peer, Progress progress) {
  if (!wait_for(fd, events, deadline)) {
    throw Error(ErrorCode::kTimeout, fmt::format("{}: timed out{}", peer, describe(progress)));
  }
}

}  // namespace

IoResult read_some(int fd, std::span<std::byte> bytes) noexcept {
  return receive(fd, bytes, MSG_DONTWAIT);
}

IoResult write_some(int fd, std::span<const std::byte> bytes) noexcept {
  const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? failure(errno) : IoResult{.n_bytes = static_cast<std::size_t>(n)};
}

IoResult write_some(int fd,
                    std::span<const std::byte> first,
                    std::span<const std::byte> second) noexcept {
  // const_cast is safe: iovec serves reads too, but sendmsg() does not write to the memory.
  std::array<iovec, 2> parts{{
      {.iov_base = const_cast<std::byte*>(first.data()), .iov_len = first.size()},
      {.iov_base = const_cast<std::byte*>(second.data()), .iov_len = second.size()},
  }};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? failure(errno) : IoResult{.n_bytes = static_cast<std::size_t>(n)};
}

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int n = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (n > 0) {
      return true;
    }
    if (n < 0 && errno != EINTR) {
      throw system_error("poll", errno);
    }
    if (deadline.has_passed()) {
      return false;
    }
  }
}

bool interruptible_wait_for(int fd, short events, Deadline deadline) {
  while (!wait_for(fd, events, earlier(deadline, next_interruption_check()))) {
    if (deadline.has_passed()) {
      return false;
    }
    check_interruption();
  }
  return true;
}

std::size_t read_at_least_one(int fd,
                              std::span<std::byte> bytes,
                              Deadline deadline,
                              const std::string& peer) {
  for (;;) {
    const IoResult result = read_some(fd, bytes);
    if (result.status == IoStatus::kDone) {
      return result.n_bytes;
    }
    if (result.status != IoStatus::kWouldBlock) {
      throw_lost(peer, result, {});
    }
    wait_or_throw(fd, POLLIN, deadline, peer, {});
  }
}

void set_patient(int fd) {
  const timeval patience{.tv_sec = 0, .tv_usec = std::chrono::microseconds(kPatience).count()};
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) {
    throw system_error("setsockopt SO_RCVTIMEO", errno);
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    throw system_error("make a socket block", errno);
  }
}

std::size_t read_by(int fd,
                    std::span<std::byte> bytes,
                    Deadline deadline,
                    const std::string& peer) {
  const bool has_time = deadline.remaining() > kPatience;
  IoResult result = receive(fd, bytes, has_time ? 0 : MSG_DONTWAIT);
  while (result.status == IoStatus::kWouldBlock) {
    if (!wait_for(fd, POLLIN, deadline)) {
      return 0;
    }
    result = read_some(fd, bytes);
  }
  if (result.status != IoStatus::kDone) {
    throw_lost(peer, result, {});
  }
  return result.n_bytes;
}

void read_exact(int fd, std::span<std::byte> bytes, Deadline deadline, const std::string& peer) {
  Progress progress{.verb = "received", .done = 0, .total = bytes.size()};
  while (progress.done < progress.total) {
    const IoResult result = read_some(fd, bytes.subspan(progress.done));
    progress.done += result.n_bytes;
    if (result.status == IoStatus::kWouldBlock) {
      wait_or_throw(fd, POLLIN, deadline, peer, progress);
    } else if (result.status != IoStatus::kDone) {
      throw_lost(peer, result, progress);
    }
  }
}

void write_all(int fd,
               std::span<const std::byte> bytes,
               Deadline deadline,
               const std::string& peer) {
  Progress progress{.verb = "sent", .done = 0, .total = bytes.size()};
  while (progress.done < progress.total) {
    const IoResult result = write_some(fd, bytes.subspan(progress.done));
    progress.done += result.n_bytes;
    if (result.status == IoStatus::kWouldBlock) {
      wait_or_throw(fd, POLLOUT, deadline, peer, progress);
    } else if (result.status != IoStatus::kDone) {
      throw_lost(peer, result, progress);
    }
  }
}

void discard_until_closed(int fd, Deadline deadline) noexcept {
  std::array<std::byte, 4096> discarded{};
  while (true) {
    const IoResult result = read_some(fd, discarded);
    const bool is_over = result.status == IoStatus::kClosed || result.status == IoStatus::kError;
    const bool is_empty = result.status == IoStatus::kWouldBlock;
    if (is_over || (is_empty && !wait_for(fd, POLLIN, deadline))) {
      return;
    }
  }
}

}  // namespace unisono::net
