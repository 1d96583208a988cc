#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "unisono/base/deadline.h"

namespace unisono::net {

enum class IoStatus {
  kDone,        ///< Some bytes moved; how many is in IoResult::n_bytes.
  kWouldBlock,  ///< Nothing now; wait until the socket is readable or writable.
  kClosed,      ///< The other side closed the connection in good order.
  kError        ///< IoResult::error_number says which.
};

struct IoResult {
  IoStatus status = IoStatus::kDone;
  std::size_t n_bytes = 0;
  int error_number = 0;
};

/// Reads what is there, at most `bytes`, without blocking. For stream sockets.
[[nodiscard]] IoResult read_some(int fd, std::span<std::byte> bytes) noexcept;

/// Writes what fits, without blocking and without SIGPIPE.
[[nodiscard]] IoResult write_some(int fd, std::span<const std::byte> bytes) noexcept;

/// The same for `first` and, behind it, `second`.
[[nodiscard]] IoResult write_some(int fd,
                                  std::span<const std::byte> first,
                                  std::span<const std::byte> second) noexcept;

/// Waits until one of poll(2)'s `events` (or an error) is there; false when the deadline passed.
[[nodiscard]] bool wait_for(int fd, short events, Deadline deadline);

/// The same, but looks meanwhile whether the program wants the wait to end, and throws then; see
/// base/interruption.h.
[[nodiscard]] bool interruptible_wait_for(int fd, short events, Deadline deadline);

/// Fills `bytes`. `peer` names the other side in errors, e.g. "store 10.0.0.2:29500".
///
/// Throws Error: kPeerLost when the connection ends before that, kTimeout; both say how many bytes
/// had come.
void read_exact(int fd, std::span<std::byte> bytes, Deadline deadline, const std::string& peer);

/// Writes all of `bytes`; throws as read_exact() does.
void write_all(int fd,
               std::span<const std::byte> bytes,
               Deadline deadline,
               const std::string& peer);

/// Waits like read_exact(), and returns the number of bytes read, at least one.
[[nodiscard]] std::size_t read_at_least_one(int fd,
                                            std::span<std::byte> bytes,
                                            Deadline deadline,
                                            const std::string& peer);

/// Makes read_by() wait in the system call that reads, which saves the one that waits. The socket
/// is a blocking one from here on. Throws Error(kSystem).
void set_patient(int fd);

/// Waits like read_exact(), and returns the number of bytes read; 0 when the deadline passed before
/// one came. Throws Error(kPeerLost).
[[nodiscard]] std::size_t read_by(int fd,
                                  std::span<std::byte> bytes,
                                  Deadline deadline,
                                  const std::string& peer);

/// Takes and drops what is there, and what comes until the other side hangs up or the deadline
/// passes. Closing a socket with unread bytes resets it, and the other side would lose what was
/// sent last.
void discard_until_closed(int fd, Deadline deadline) noexcept;

}  // namespace unisono::net
