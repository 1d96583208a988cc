#pragma once

#include <functional>
#include <map>
#include <string>

#include "unisono/base/fd.h"
#include "unisono/base/limited_logger.h"
#include "unisono/base/log.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/strangers.h"

namespace unisono::comm {

/// Lets in, at a rank's data listener, the job's other ranks, and nobody else. A stranger is
/// dropped with a line in the log, unless it leaves without a word. Belongs to the event loop's
/// thread once that runs.
class Doorkeeper {
 public:
  using Deliver = std::function<void(const net::HelloInfo& visitor, Fd socket)>;

  /// `listener` and `loop` outlive it. `deliver` gets each connection after its hello, whatever
  /// group it is for.
  Doorkeeper(net::EventLoop& loop,
             int listener,
             net::HelloInfo mine,
             std::string secret,
             int world_size,
             Logger logger,
             Deliver deliver);

 private:
  // A connection whose hello is under way.
  struct Visitor {
    Fd socket;
    std::string name;  // Once it has gone, nobody can say who it was.
    net::Hello hello;
    net::EventLoop::TimerId timer;
    bool has_spoken = false;
  };

  void accept_all();
  [[nodiscard]] bool has_room();
  void admit(Fd socket);
  void pause(const std::string& reason);
  void greet(int fd);
  void finish(int fd);
  [[nodiscard]] bool is_member(const net::HelloInfo& theirs) const;
  void drop(int fd, const std::string& reason);
  void forget(int fd);
  [[nodiscard]] bool send_output(Visitor& visitor);

  net::EventLoop& loop_;
  int listener_;
  net::HelloInfo mine_;
  std::string secret_;
  int world_size_;
  LimitedLogger logger_;
  Deliver deliver_;
  std::map<int, Visitor> visitors_;
  net::Strangers strangers_;  // The same, by their descriptors.
};

}  // namespace unisono::comm
