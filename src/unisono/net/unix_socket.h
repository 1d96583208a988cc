#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::net {

// Abstract Unix sockets: the name is in the network namespace, without a file, and disappears with
// the last descriptor. Nonblocking, close-on-exec, not shared with children of fork(). Any user of
// the machine may connect: check peer_credentials() and perform the handshake.

/// Maximum length of an abstract socket's name in bytes.
inline constexpr int kMaxAbstractName = 107;

/// Listens on the name. Throws Error(kSystem), e.g. if the name is in use.
[[nodiscard]] Fd listen_unix_abstract(const std::string& name, int backlog = 1024);

/// Connects; waits while the listener's queue is full. Throws Error(kPeerLost) if no process
/// listens on the name, Error(kTimeout) at the deadline.
[[nodiscard]] Fd connect_unix_abstract(const std::string& name, Deadline deadline);

/// Binds a datagram socket to the name. Throws Error(kSystem).
[[nodiscard]] Fd bind_unix_datagram(const std::string& name);

/// Sends a datagram that consists of `first` followed by `second` to the socket with that name.
/// Does not block and allocates no memory. Returns 0, or the errno: EAGAIN if the receiver's queue
/// is full, ECONNREFUSED if no socket has the name.
[[nodiscard]] int send_datagram(int fd,
                                const std::string& name,
                                std::span<const std::byte> first,
                                std::span<const std::byte> second = {}) noexcept;

/// A received datagram.
struct Datagram {
  std::size_t n_bytes;  ///< Number of bytes stored. The kernel discards bytes that did not fit.
  uid_t uid;            ///< The sender's uid, verified by the kernel.
};

/// Receives the next datagram of a socket of bind_unix_datagram(). Returns std::nullopt if no
/// datagram is waiting.
[[nodiscard]] std::optional<Datagram> receive_datagram(int fd, std::span<std::byte> into) noexcept;

/// Identity of the process at the other side of a Unix socket.
struct PeerCredentials {
  uid_t uid;
  pid_t pid;  ///< The peer's pid in this process's pid namespace; 0 if it is not visible there.
};

/// Returns the credentials of the connecting process, verified by the kernel. Throws
/// Error(kSystem).
[[nodiscard]] PeerCredentials peer_credentials(int fd);

/// Sends a copy of the descriptor `passed` over a Unix socket, with one byte of data.
///
/// Throws the errors of write_all().
void send_fd(int fd, int passed, Deadline deadline, const std::string& peer);

/// Receives the descriptor of send_fd(); sets close-on-exec.
///
/// Throws Error: kPeerLost, kTimeout, and kCorruptData if a byte arrives without a descriptor.
[[nodiscard]] Fd receive_fd(int fd, Deadline deadline, const std::string& peer);

}  // namespace unisono::net
