#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "unisono/base/deadline.h"

namespace unisono::net {

/// Outcome of a nonblocking read or write.
enum class IoStatus {
  kDone,        ///< Bytes were transferred; IoResult::n_bytes is their number.
  kWouldBlock,  ///< No byte can be transferred now; wait until the socket is readable or writable.
  kClosed,      ///< The other side closed the connection cleanly.
  kError        ///< The call failed with IoResult::error_number.
};

/// Result of a nonblocking read or write.
struct IoResult {
  IoStatus status = IoStatus::kDone;
  std::size_t n_bytes = 0;
  int error_number = 0;
};

/// Reads available bytes, at most the size of `bytes`, without blocking. For stream sockets.
[[nodiscard]] IoResult read_some(int fd, std::span<std::byte> bytes) noexcept;

/// Writes as many bytes as the socket buffer takes, without blocking and without SIGPIPE.
[[nodiscard]] IoResult write_some(int fd, std::span<const std::byte> bytes) noexcept;

/// Writes `first` followed by `second`, like write_some().
[[nodiscard]] IoResult write_some(int fd,
                                  std::span<const std::byte> first,
                                  std::span<const std::byte> second) noexcept;

/// Waits until one of poll(2)'s `events` (or an error) is reported. Returns false if the deadline
/// has passed.
[[nodiscard]] bool wait_for(int fd, short events, Deadline deadline);

/// The same, but looks meanwhile whether the program wants the wait to end, and throws then; see
/// base/thread.h.
[[nodiscard]] bool interruptible_wait_for(int fd, short events, Deadline deadline);

/// Fills `bytes`. `peer` names the other side in errors, e.g. "store 10.0.0.2:29500".
///
/// Throws Error: kPeerLost if the connection ends early, kTimeout at the deadline. The message
/// contains the number of bytes received so far.
void read_exact(int fd, std::span<std::byte> bytes, Deadline deadline, const std::string& peer);

/// Writes all of `bytes`. Throws the errors of read_exact().
void write_all(int fd,
               std::span<const std::byte> bytes,
               Deadline deadline,
               const std::string& peer);

/// Waits for data. Returns the number of bytes read, at least one. Throws the errors of
/// read_exact().
[[nodiscard]] std::size_t read_at_least_one(int fd,
                                            std::span<std::byte> bytes,
                                            Deadline deadline,
                                            const std::string& peer);

/// Makes read_by() block in recv(2) instead of calling poll(2) first. The socket becomes a blocking
/// socket. Throws Error(kSystem).
void set_patient(int fd);

/// Waits for data. Returns the number of bytes read, or 0 if the deadline has passed without data.
/// Throws Error(kPeerLost).
[[nodiscard]] std::size_t read_by(int fd,
                                  std::span<std::byte> bytes,
                                  Deadline deadline,
                                  const std::string& peer);

/// Reads and discards bytes until the other side closes the connection or the deadline passes.
/// Closing a socket with unread bytes resets the connection, and the other side would lose the last
/// bytes sent to it.
void discard_until_closed(int fd, Deadline deadline) noexcept;

}  // namespace unisono::net
