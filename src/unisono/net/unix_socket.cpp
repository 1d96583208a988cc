#include "unisono/net/unix_socket.h"

#include <fmt/format.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

#include "unisono/base/error.h"
#include "unisono/net/io.h"

namespace unisono::net {
namespace {

struct UnixAddress {
  sockaddr_un data;
  socklen_t size;
};

UnixAddress abstract_address(const std::string& name) {
  if (name.empty() || name.size() > static_cast<std::size_t>(kMaxAbstractName)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("an abstract socket's name has 1 to {} bytes, not {}: \"{}\"",
                            kMaxAbstractName,
                            name.size(),
                            name));
  }
  UnixAddress address{};
  address.data.sun_family = AF_UNIX;
  std::memcpy(address.data.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd open_unix(int type = SOCK_STREAM) {
  Fd fd = Fd::open_unshared(
      [type] { return ::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!fd.is_open()) {
    throw descriptor_error("opening a Unix socket", errno);
  }
  return fd;
}

// A message of a single byte with room for an ancillary descriptor.
struct FdMessage {
  FdMessage() {
    vector = {.iov_base = &byte, .iov_len = 1};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    // Room for exactly one descriptor: the kernel drops further descriptors instead of leaking them
    // into this process.
    header.msg_controllen = CMSG_LEN(sizeof(int));
  }

  char byte = 0;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec vector{};
  msghdr header{};
};

bool is_would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

// Repeats `transfer` (sendmsg or recvmsg) until it succeeds.
template <class Transfer>
ssize_t transfer_by(
    int fd, short events, Deadline deadline, const std::string& peer, Transfer transfer) {
  for (;;) {
    const ssize_t n = transfer();
    if (n >= 0) {
      return n;
    }
    if (!is_would_block(errno)) {
      throw Error(ErrorCode::kPeerLost,
                  system_error(peer + ": pass a file descriptor", errno).what());
    }
    if (!wait_for(fd, events, deadline)) {
      throw Error(ErrorCode::kTimeout, peer + ": timed out while passing a file descriptor");
    }
  }
}

}  // namespace

Fd listen_unix_abstract(const std::string& name, int backlog) {
  const UnixAddress address = abstract_address(name);
  Fd fd = open_unix();
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.data), address.size) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    throw system_error("listen on abstract socket \"" + name + "\"", errno);
  }
  return fd;
}

Fd connect_unix_abstract(const std::string& name, Deadline deadline) {
  const UnixAddress address = abstract_address(name);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    Fd fd = open_unix();
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.data), address.size) == 0) {
      return fd;
    }
    const int error_number = errno;
    if (error_number == ECONNREFUSED) {
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("no process listens at abstract socket \"{}\"", name));
    }
    // EAGAIN: the listener's queue is full.
    if (!is_would_block(error_number)) {
      throw system_error("connect to abstract socket \"" + name + "\"", error_number);
    }
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("could not connect to abstract socket \"{}\" in time; last: {}",
                              name,
                              std::generic_category().message(error_number)));
    }
    std::this_thread::sleep_until(earlier(Deadline::after(pause), deadline).time());
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
}

Fd bind_unix_datagram(const std::string& name) {
  const UnixAddress address = abstract_address(name);
  Fd fd = open_unix(SOCK_DGRAM);
  // SO_PASSCRED precedes bind(), because an earlier datagram would have no credentials.
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.data), address.size) != 0) {
    throw system_error("bind abstract socket \"" + name + "\"", errno);
  }
  return fd;
}

int send_datagram(int fd,
                  const std::string& name,
                  std::span<const std::byte> first,
                  std::span<const std::byte> second) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t n_bytes = std::min<std::size_t>(name.size(), kMaxAbstractName);
  // A name that begins with a zero byte is abstract.
  std::copy_n(name.begin(), n_bytes, address.sun_path + 1);
  const auto iovec_of = [](std::span<const std::byte> bytes) {
    return iovec{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  };
  std::array<iovec, 2> parts{iovec_of(first), iovec_of(second)};
  msghdr header{};
  header.msg_name = &address;
  header.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n_bytes);
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  return ::sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

std::optional<Datagram> receive_datagram(int fd, std::span<std::byte> into) noexcept {
  iovec vector{.iov_base = into.data(), .iov_len = into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t n_bytes = -1;
  do {
    n_bytes = ::recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n_bytes < 0 && errno == EINTR);
  if (n_bytes < 0) {
    return std::nullopt;
  }
  // Without credentials the uid is invalid.
  ucred sender{.pid = 0, .uid = std::numeric_limits<uid_t>::max(), .gid = 0};
  const cmsghdr* const message = CMSG_FIRSTHDR(&header);
  if (message != nullptr && message->cmsg_level == SOL_SOCKET &&
      message->cmsg_type == SCM_CREDENTIALS && message->cmsg_len == CMSG_LEN(sizeof(ucred))) {
    std::memcpy(&sender, CMSG_DATA(message), sizeof(sender));
  }
  return Datagram{.n_bytes = static_cast<std::size_t>(n_bytes), .uid = sender.uid};
}

PeerCredentials peer_credentials(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw system_error("read the credentials of a Unix socket's other side", errno);
  }
  return {.uid = credentials.uid, .pid = credentials.pid};
}

void send_fd(int fd, int passed, Deadline deadline, const std::string& peer) {
  FdMessage message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &passed, sizeof(int));
  transfer_by(
      fd, POLLOUT, deadline, peer, [&] { return ::sendmsg(fd, &message.header, MSG_NOSIGNAL); });
}

Fd receive_fd(int fd, Deadline deadline, const std::string& peer) {
  FdMessage message;
  const ssize_t n = transfer_by(
      fd, POLLIN, deadline, peer, [&] { return ::recvmsg(fd, &message.header, MSG_CMSG_CLOEXEC); });
  if (n == 0) {
    throw Error(ErrorCode::kPeerLost,
                peer + ": closed the connection before it passed a file descriptor");
  }
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
      control->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error(ErrorCode::kCorruptData, peer + ": sent data where a file descriptor was expected");
  }
  int received = -1;
  std::memcpy(&received, CMSG_DATA(control), sizeof(int));
  Fd owned(received);
  if ((message.header.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(ErrorCode::kCorruptData,
                peer + ": sent several file descriptors where one was expected");
  }
  return owned;
}

}  // namespace unisono::net
