#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/limited_logger.h"
#include "unisono/base/log.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/unauthenticated_connections.h"

namespace unisono::health {

/// How long a process may lack file descriptors before the one that is kept back is used: they may
/// come free.
inline constexpr std::chrono::seconds kFilePatience{3};

/// A file descriptor that is kept back, so that who comes when a process has no other can at least
/// be told.
class FileReserve {
 public:
  using Time = Deadline::Clock::time_point;

  FileReserve();

  /// Notes that there was no descriptor to be had. True if that has been so for kFilePatience and
  /// the one that was kept back is free now.
  [[nodiscard]] bool note_lack(Time now);

  /// Keeps one back again. False if there still is none.
  [[nodiscard]] bool refill();

 private:
  Fd file_;
  Time since_;  // Of a lack that was noted last at `last_`.
  Time last_;
};

/// Accepts connections of the job's other ranks at a rank's data listener. Any other is closed with
/// a line in the log, unless it ended without sending anything; so is one for which there is no
/// memory. Belongs to the event loop's thread once that runs.
///
/// Where the process has had no file descriptor for kFilePatience, members are let in one by one,
/// to be told so.
class Acceptor {
 public:
  /// `shortage` says why the connection can't be kept, if that is so: it is to be told, and closed.
  using Deliver = std::function<void(
      const net::HelloInfo& pending, Fd socket, const std::optional<Error>& shortage)>;

  /// `listener` and `loop` outlive it. `deliver` gets each connection after its hello, whatever
  /// group it is for.
  Acceptor(net::EventLoop& loop,
           int listener,
           net::HelloInfo mine,
           std::string secret,
           int world_size,
           Logger logger,
           Deliver deliver);

 private:
  // A connection whose hello is under way.
  struct PendingConnection {
    Fd socket;
    std::string name;  // Once it has gone, nobody can say who it was.
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
  LimitedLogger logger_;
  Deliver deliver_;
  std::map<int, PendingConnection> pending_;
  net::UnauthenticatedConnections unauthenticated_;  // The same, by their descriptors.
  FileReserve reserve_;
};

}  // namespace unisono::health
