#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::net {

// Abstract Unix sockets: a name in the network namespace, no file, gone with its last descriptor.
// Nonblocking, close-on-exec, not shared with children of fork(). Any user of the machine may
// connect to one: check peer_credentials() and say the hello.

/// Longest name of an abstract socket, in bytes.
inline constexpr int kMaxAbstractName = 107;

/// Throws Error(kSystem), e.g. when the name is taken.
[[nodiscard]] Fd listen_unix_abstract(const std::string& name, int backlog = 1024);

/// Connects, waiting while the listener's queue is full. Throws Error(kPeerLost) when nobody
/// listens there, kTimeout.
[[nodiscard]] Fd connect_unix_abstract(const std::string& name, Deadline deadline);

/// Binds a datagram socket to the name. Throws Error(kSystem).
[[nodiscard]] Fd bind_unix_datagram(const std::string& name);

/// Sends one datagram, of `first` and `second` behind it, to the socket of that name. Does not
/// block, and takes no memory. Returns 0, or the errno: EAGAIN where the receiver's queue is full,
/// ECONNREFUSED where nobody has the name.
[[nodiscard]] int send_datagram(int fd,
                                const std::string& name,
                                std::span<const std::byte> first,
                                std::span<const std::byte> second = {}) noexcept;

/// A datagram that has come.
struct Datagram {
  std::size_t n_bytes;  ///< What did not fit is lost.
  uid_t uid;            ///< The sender's, as the kernel vouches for.
};

/// Takes the next datagram of bind_unix_datagram()'s socket; nothing if none is there.
[[nodiscard]] std::optional<Datagram> receive_datagram(int fd, std::span<std::byte> into) noexcept;

struct PeerCredentials {
  uid_t uid;
  pid_t pid;  ///< As this process's pid namespace sees it; 0 if it can't.
};

/// Who connected, as the kernel vouches for. Throws Error(kSystem).
[[nodiscard]] PeerCredentials peer_credentials(int fd);

/// Passes a copy of `passed` to the other side of a Unix socket, with one byte of data.
///
/// Throws as write_all() does.
void send_fd(int fd, int passed, Deadline deadline, const std::string& peer);

/// Takes what send_fd() passed; close-on-exec.
///
/// Throws Error: kPeerLost, kTimeout, and kCorruptData when a byte came without a descriptor.
[[nodiscard]] Fd receive_fd(int fd, Deadline deadline, const std::string& peer);

}  // namespace unisono::net
