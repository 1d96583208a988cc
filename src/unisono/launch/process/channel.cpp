#include "unisono/launch/process/channel.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

constexpr std::size_t kMaxFds = 3;

struct alignas(cmsghdr) ControlBuffer {
  std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> bytes{};
};

std::vector<Fd> take_fds(msghdr& header) {
  std::vector<Fd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t n_fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n_fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

std::pair<Channel, Channel> Channel::make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw system_error("socketpair", errno);
  }
  return {Channel(Fd(ends[0])), Channel(Fd(ends[1]))};
}

bool Channel::send(const Message& message, bool wait, std::initializer_list<int> fds) {
  std::vector<std::byte> bytes = encode(message);
  UNISONO_CHECK(bytes.size() <= kMaxMessageBytes && fds.size() <= kMaxFds,
                "a message between agent and guardian is too large");
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ControlBuffer control;
  if (fds.size() > 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.begin(), fds.size() * sizeof(int));
  }
  const int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket_.get(), &header, flags);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool Channel::is_drained() const {
  int n_bytes = 0;
  return ::ioctl(socket_.get(), SIOCOUTQ, &n_bytes) != 0 || n_bytes == 0;
}

std::optional<Received> Channel::receive() {
  std::vector<std::byte> bytes(kMaxMessageBytes);
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t n_bytes = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n_bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
    return std::nullopt;
  }
  if (n_bytes <= 0) {
    closed_ = true;
    return std::nullopt;
  }
  std::vector<Fd> fds = take_fds(header);
  std::optional<Message> message =
      decode(std::span(bytes).first(static_cast<std::size_t>(n_bytes)));
  UNISONO_CHECK(message.has_value() && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0,
                "agent and guardian use different protocols");
  return Received{std::move(*message), std::move(fds)};
}

}  // namespace unisono::launch
