#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"

namespace unisono::net {

// All sockets made here are nonblocking, close-on-exec, and not shared with children of fork().

/// The Error(kSystem) of listen_tcp() for a port in use.
class PortInUse final : public Error {
 public:
  explicit PortInUse(const std::string& message) : Error(ErrorCode::kSystem, message) {}
};

/// Listens on `address`; port 0 takes a free one, see local_address(). "::" takes IPv4 too.
///
/// Throws Error(kSystem); for a port in use PortInUse, which names who holds it, as far as /proc
/// tells.
[[nodiscard]] Fd listen_tcp(const Address& address, int backlog = 4096);

/// All addresses of this machine, for listen_tcp(): "::", or "0.0.0.0" where it has no IPv6.
[[nodiscard]] Address any_of_both_families(std::uint16_t port);

/// Listens on the first free one of `ports`, whatever the port of `address` is.
///
/// Throws Error(kSystem); when all are in use it names them.
[[nodiscard]] Fd listen_tcp(const Address& address, const PortRange& ports, int backlog = 4096);

/// Connects; tries again until the deadline. TCP_NODELAY is set.
///
/// Throws Error with the address, the last reason that says something and the time spent: kTimeout,
/// and kPeerLost when it was refused and gives up.
[[nodiscard]] Fd connect_tcp(const Address& address,
                             Deadline deadline,
                             IfRefused if_refused = IfRefused::kTryAgain);

/// The same by host name, which is looked up anew for each attempt: in a cluster the name may come
/// later than its users. Tries all of its addresses. Throws Error(kInvalidArgument) at once for a
/// name that no machine can have.
[[nodiscard]] Fd connect_tcp(const std::string& host,
                             std::uint16_t port,
                             Deadline deadline,
                             IfRefused if_refused = IfRefused::kTryAgain);

/// A connection that is being made.
struct Connecting {
  Fd fd;
  int error_number = 0;  ///< Not 0 when it failed at once.
};

/// Begins to connect and does not wait: once the socket is writable, end_connect() says how it
/// went. Throws Error(kSystem) when there is no socket.
[[nodiscard]] Connecting begin_connect(const Address& address);

/// 0 when the socket is connected, else the errno that says why not. Sets TCP_NODELAY.
[[nodiscard]] int end_connect(int fd, const Address& address);

/// 0 when somebody listens at the address, else the errno that says why none can be reached there:
/// ETIMEDOUT when no answer comes by the deadline. Looks once.
[[nodiscard]] int find_obstacle(const Address& address, Deadline deadline);

/// Whether the address's host says that nobody listens there. Looks once: false, too, when no
/// answer comes by the deadline.
[[nodiscard]] bool is_refused(const Address& address, Deadline deadline);

/// What accept_connection() found.
struct Accepted {
  Fd fd;                 ///< Open if there was a connection.
  int error_number = 0;  ///< Not 0 when accepting failed, e.g. EMFILE.
};

/// Takes one waiting connection of a listening socket, TCP or Unix; does not block.
[[nodiscard]] Accepted accept_connection(int listener) noexcept;

/// Turns Nagle's algorithm off: our messages are written whole.
void set_no_delay(int fd);

/// Makes the kernel end a connection with nothing in flight whose other side does not answer for
/// about `timeout` (keepalive). Where something is, see AnswerWatch.
void set_idle_timeout(int fd, std::chrono::seconds timeout);

/// The same with data in flight, too (TCP_USER_TIMEOUT). For connections whose other side reads at
/// once what it is sent: one that has no room for so long is given up as well.
void set_liveness_timeout(int fd, std::chrono::seconds timeout);

/// Own address of a TCP socket. Throws Error(kSystem).
[[nodiscard]] Address local_address(int fd);

/// The other side's address. Throws Error(kSystem).
[[nodiscard]] Address peer_address(int fd);

/// The other side of a TCP or Unix socket, for messages; never throws for a lost connection.
[[nodiscard]] std::string describe_peer(int fd);

}  // namespace unisono::net
