#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"

namespace unisono::net {

/// Creates a TCP socket with `open`, binds it to `address` with a port of `ports` instead of the
/// address's port, and passes it to `use`. Takes the first port that no socket has bound; otherwise
/// the first port of closed connections in TIME_WAIT or of a reservation. Sets SO_REUSEADDR.
///
/// `use` returns false if another process was faster in using the port. Throws Error(kSystem) that
/// names the ports if all are in use during half a second of retries: processes that compete for
/// the last ports may block each other for a moment.
[[nodiscard]] Fd bind_in_range(const Address& address,
                               const PortRange& ports,
                               const std::function<Fd()>& open,
                               const std::function<bool(int fd)>& use);

/// Reserves a TCP port for a server that starts later. The socket is bound with SO_REUSEADDR but
/// does not listen: the kernel does not assign the port to a socket that requests any port, while
/// listen_tcp() can bind it by number. The destructor releases the port.
class PortReservation {
 public:
  /// Reserves the port of `address`, or any free port if that is 0. Throws Error(kSystem) if the
  /// port is in use.
  explicit PortReservation(const Address& address);

  /// Reserves the first free port of `ports`; ignores the port of `address`. Takes a port that
  /// another process has reserved only if no other port is free. Throws Error(kSystem) if all are
  /// in use.
  PortReservation(const Address& address, const PortRange& ports);

  [[nodiscard]] std::uint16_t port() const;

 private:
  Fd socket_;
};

/// Randomized exponential backoff: pauses from 2 ms to half a second, each drawn from [half, full],
/// so that a thousand ranks do not retry at the same time. Not thread-safe.
class Backoff {
 public:
  /// Sleeps for the next pause, at most until the deadline. Throws the exception of an interruption
  /// check.
  void pause(Deadline deadline);

 private:
  std::minstd_rand random_{std::random_device{}()};
  std::chrono::milliseconds pause_{2};
};

/// Returns the owner of the connected TCP socket with the addresses `local` and `remote`, from
/// /proc/net/tcp and tcp6 of this network namespace. Returns std::nullopt if there is no such
/// socket.
///
/// The time is proportional to the number of this machine's connections.
[[nodiscard]] std::optional<uid_t> find_socket_owner(const Address& local, const Address& remote);

/// Returns a description of the process that listens on a TCP port of this network namespace:
/// "process 4123 (python3 train.py)".
///
/// Empty if no process listens, or if /proc hides the process because it belongs to another user.
[[nodiscard]] std::string find_port_holder(std::uint16_t port);

}  // namespace unisono::net
