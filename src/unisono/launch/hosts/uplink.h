#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/hosts/link.h"
#include "unisono/launch/hosts/messages.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/process/signals.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// How a launcher that another one has started on this host speaks with it. One thread.
class Uplink {
 public:
  /// Takes stdin and stdout for it: afterwards stdin is empty, and stdout is stderr. Throws
  /// Error(kInvalidArgument) where stdin is no pipe, Error(kSystem).
  Uplink();

  /// Waits for what is to be run here. Throws Error(kTimeout), Error(kSystem).
  [[nodiscard]] const Begin& begin();

  [[nodiscard]] net::EventLoop& loop() { return loop_; }

  /// This host, as the user calls it.
  [[nodiscard]] const std::string& label() const { return begin_.label; }

  /// Where the ranks' output goes. The object must outlive them.
  [[nodiscard]] Sinks sinks();

  struct Orders {
    std::function<void(const CaughtSignal& signal)> on_signal;
    /// The ranks are to end, for this reason.
    std::function<void(const std::string& why)> on_stop;
  };

  /// Gives orders to these from now on, and those that have come.
  void attach(Orders orders);

  /// Gives orders to nobody any more.
  void detach() { orders_ = {}; }

  /// Says how the job has ended here, and waits until the other side has it, or 10 s.
  void end(int exit_code, const std::string& report);

 private:
  void take(const Message& message);
  void stop(const std::string& why);

  net::EventLoop loop_;
  Begin begin_;
  bool has_begun_ = false;
  std::optional<Orders> orders_;
  std::vector<Message> early_;  // Before attach().
  std::string lost_;            // Why nobody is there any more.
  std::unique_ptr<Link> link_;
};

}  // namespace unisono::launch::hosts
