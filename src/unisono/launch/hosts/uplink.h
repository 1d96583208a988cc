#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/hosts/link.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/process/signals.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::hosts {

/// Connection of a launcher to the launcher that started it on this host. serve_uplink() owns the
/// object; all functions run on the same thread. A lost connection ends the ranks by `on_stop`.
class Uplink {
 public:
  /// Takes stdin and stdout for the connection: afterwards stdin is empty and stdout is stderr.
  /// Throws Error(kInvalidArgument) if stdin is neither a pipe nor a socket, Error(kSystem).
  Uplink();

  /// Waits for the description of the run on this host. Throws Error(kTimeout), Error(kSystem).
  [[nodiscard]] const Begin& begin();

  [[nodiscard]] net::EventLoop& loop() { return loop_; }

  /// Returns the name of this host, as the user wrote it.
  [[nodiscard]] const std::string& label() const { return begin_.label; }

  /// Returns the sinks for the output of the ranks. The object must outlive the sinks.
  [[nodiscard]] Sinks sinks();

  /// Callbacks for the messages of the other launcher.
  struct Orders {
    std::function<void(const CaughtSignal& signal)> on_signal;
    /// The ranks must end, for the reason `why`.
    std::function<void(const std::string& why)> on_stop;
  };

  /// Passes orders to `orders` from now on, first the orders that have already arrived.
  void attach(Orders orders);

  /// Stops passing on orders.
  void detach() { orders_ = {}; }

  /// Reports the end of the job on this host, and waits until the pipe has taken the message, 10 s
  /// at most.
  void end(int exit_code, const std::string& report);

 private:
  void take(const Message& message);
  void stop(const std::string& why);

  net::EventLoop loop_;
  Begin begin_;
  bool has_begun_ = false;
  std::optional<Orders> orders_;
  std::vector<Message> early_;  // Messages that arrived before attach().
  std::string lost_;            // Reason of the lost connection; empty while connected.
  std::unique_ptr<HostLink> link_;
};

}  // namespace unisono::launch::hosts
