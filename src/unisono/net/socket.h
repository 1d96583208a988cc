#pragma once

#include <netinet/tcp.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"

namespace unisono::net {

// All sockets of these functions are nonblocking, close-on-exec, and not shared with children of
// fork().

/// The Error(kSystem) that listen_tcp() throws for a port in use.
class PortInUse final : public Error {
 public:
  explicit PortInUse(const std::string& message) : Error(ErrorCode::kSystem, message) {}
};

/// Listens on `address`. Port 0 selects a free port, see local_address(). "::" also accepts IPv4.
///
/// Throws Error(kSystem). For a port in use throws PortInUse with a message that names the
/// listening process if /proc shows that process.
[[nodiscard]] Fd listen_tcp(const Address& address, int backlog = 4096);

/// Returns the wildcard address for listen_tcp(): "::", or "0.0.0.0" on a machine without IPv6.
[[nodiscard]] Address any_of_both_families(std::uint16_t port);

/// Listens on the first free port of `ports`; ignores the port of `address`.
///
/// Throws Error(kSystem) that names the ports if all are in use.
[[nodiscard]] Fd listen_tcp(const Address& address, const PortRange& ports, int backlog = 4096);

/// Connects; retries until the deadline. Sets TCP_NODELAY.
///
/// Throws Error with the address, the last informative reason and the elapsed time: kTimeout at the
/// deadline, kPeerLost if the host refuses the connection and `if_refused` is kGiveUp.
[[nodiscard]] Fd connect_tcp(const Address& address,
                             Deadline deadline,
                             IfRefused if_refused = IfRefused::kTryAgain);

/// Connects to a host name. Resolves the name again for each attempt, because in a cluster a name
/// may be registered later than its first use, and tries all of its addresses. Throws the errors of
/// the overload above, and Error(kInvalidArgument) at once for a name that no machine can have.
[[nodiscard]] Fd connect_tcp(const std::string& host,
                             std::uint16_t port,
                             Deadline deadline,
                             IfRefused if_refused = IfRefused::kTryAgain);

/// A connection attempt in progress.
struct Connecting {
  Fd fd;
  int error_number = 0;  ///< Not 0 if the attempt failed at once.
};

/// Starts to connect without waiting. Call end_connect() once the socket is writable. Throws
/// Error(kSystem) if no socket can be created.
[[nodiscard]] Connecting begin_connect(const Address& address);

/// Returns 0 if the socket is connected, otherwise the errno of the failure. Sets TCP_NODELAY.
[[nodiscard]] int end_connect(int fd, const Address& address);

/// Makes a single connection attempt. Returns 0 if it succeeds, otherwise the errno of the failure:
/// ETIMEDOUT if no reply arrives by the deadline.
[[nodiscard]] int find_obstacle(const Address& address, Deadline deadline);

/// Makes a single connection attempt. Returns true if the host refuses the connection; false if no
/// reply arrives by the deadline.
[[nodiscard]] bool is_refused(const Address& address, Deadline deadline);

/// Result of accept_connection().
struct Accepted {
  Fd fd;                 ///< Open if a connection was waiting.
  int error_number = 0;  ///< Not 0 if accepting failed, e.g. EMFILE.
};

/// Accepts one waiting connection of a listening socket, TCP or Unix. Does not block.
[[nodiscard]] Accepted accept_connection(int listener) noexcept;

/// Disables Nagle's algorithm: this library writes complete messages.
void set_no_delay(int fd);

/// Makes the kernel end an idle connection if the peer does not reply for about `timeout`
/// (keepalive). For connections with data in flight see AnswerWatch.
void set_idle_timeout(int fd, std::chrono::seconds timeout);

/// Sets the idle timeout, and the same limit for data in flight (TCP_USER_TIMEOUT). For peers that
/// read all data at once: the kernel also ends the connection if the peer's window is zero for this
/// time.
void set_liveness_timeout(int fd, std::chrono::seconds timeout);

/// Returns the own address of a TCP socket. Throws Error(kSystem).
[[nodiscard]] Address local_address(int fd);

/// Returns the peer's address of a TCP socket. Throws Error(kSystem).
[[nodiscard]] Address peer_address(int fd);

/// Returns a description of the peer of a TCP or Unix socket, for messages. Does not throw for a
/// lost connection.
[[nodiscard]] std::string describe_peer(int fd);

/// Detects that the peer of a TCP connection does not acknowledge sent data within `patience`.
///
/// TCP_USER_TIMEOUT also detects this, but additionally ends a connection if the peer acknowledges
/// with a zero window because its application does not read yet.
///
/// The owner polls the object while a thread waits for the connection; about 20 polls per
/// `patience` reach the kernel, the others return at once. Not thread-safe.
class AnswerWatch {
 public:
  explicit AnswerWatch(std::chrono::milliseconds patience) : patience_(patience) {}

  /// Returns true if data or a window probe was sent and no reply has arrived for `patience`.
  /// Returns false if `fd` is not a TCP socket, and between two checks.
  [[nodiscard]] bool is_silent(int fd) noexcept;

  using Clock = std::chrono::steady_clock;

  /// Evaluates the kernel's state `info` of the connection at the time `now`. A long interval
  /// without a check restarts the count, because the machine may have been suspended.
  [[nodiscard]] bool is_silent(const tcp_info& info, Clock::time_point now) noexcept;

 private:
  [[nodiscard]] std::chrono::milliseconds interval() const;

  std::chrono::milliseconds patience_;
  Deadline next_look_ = Deadline::after(std::chrono::seconds(0));
  Clock::time_point last_look_;
  // Time of the first check that found unacknowledged data, if no reply has arrived since.
  std::optional<Clock::time_point> unanswered_since_;
};

}  // namespace unisono::net
