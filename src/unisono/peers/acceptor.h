#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/unauthenticated_connections.h"

namespace unisono::peers {

/// How long a process may lack file descriptors before the reserved descriptor is released. Other
/// descriptors may be freed in the meantime.
inline constexpr std::chrono::seconds kFilePatience{3};

/// A reserved file descriptor. A process without other descriptors uses it to accept a connection
/// and report the shortage.
class FileReserve {
 public:
  using Time = Deadline::Clock::time_point;

  /// Reserves a descriptor, if available.
  FileReserve();

  /// Records that no descriptor was available. Returns true if this has lasted for kFilePatience
  /// and the reserved descriptor is now free.
  [[nodiscard]] bool note_lack(Time now);

  /// Reserves a descriptor again. Returns false if none is available.
  [[nodiscard]] bool refill();

 private:
  Fd file_;
  Time since_;  // Begin of the shortage that was last recorded at `last_`.
  Time last_;
};

/// Accepts connections of the job's other ranks at a rank's data listener. Closes all other
/// connections with a line in the log, except for connections that end without sending data; closes
/// a connection for which there is no memory. Owned by PeerMonitor; used only by the event loop's
/// thread once the loop runs.
///
/// If the process has had no file descriptor for kFilePatience, members are accepted one at a time
/// in order to report the shortage.
class Acceptor {
 public:
  /// Receives a connection. `shortage` is set if the process cannot keep the connection; the
  /// receiver reports the shortage and closes the connection.
  using Deliver = std::function<void(
      const net::HelloInfo& pending, Fd socket, const std::optional<Error>& shortage)>;

  /// `listener` and `loop` must outlive the object. `deliver` receives each connection after the
  /// hello, for any group.
  Acceptor(net::EventLoop& loop,
           int listener,
           net::HelloInfo mine,
           std::string secret,
           int world_size,
           base::Logger logger,
           Deliver deliver);

 private:
  // A connection during its hello.
  struct PendingConnection {
    Fd socket;
    std::string name;  // Kept for messages: a closed connection has no address.
    net::Hello hello;
    net::EventLoop::TimerId timer;
    bool has_spoken = false;
  };

  template <class Step>
  void survive(Step step) noexcept;
  void warn(const char* problem) noexcept;
  void accept_all();
  [[nodiscard]] bool make_room();
  void admit(Fd socket);
  void pause(const std::string& reason);
  void attend(int fd);
  void greet(int fd);
  void finish(int fd);
  [[nodiscard]] bool is_member(const net::HelloInfo& theirs) const;
  void drop(int fd, const std::string& reason);
  void forget(int fd);
  void release(int fd);

  net::EventLoop& loop_;
  int listener_;
  net::HelloInfo mine_;
  std::string secret_;
  int world_size_;
  net::LimitedLogger logger_;
  Deliver deliver_;
  std::map<int, PendingConnection> pending_;
  net::UnauthenticatedConnections unauthenticated_;  // Descriptors of pending_.
  FileReserve reserve_;
};

}  // namespace unisono::peers
