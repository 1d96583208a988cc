#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/keep_alive.h"
#include "unisono/launch/message_frames.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"

namespace unisono::launch::nodes {

/// A connection between a node and the coordinator, which begins with the hello; see
/// docs/design/nodes.md. Belongs to the loop's thread.
class NodeConnection {
 public:
  struct Events {
    std::function<void(Message message)> on_message;
    /// At most once, and nothing follows it. Not called from the constructor or from send().
    std::function<void(const std::string& why)> on_lost;
  };

  /// Takes a connected socket. `loop` must outlive the object, and `events` must not destroy it.
  NodeConnection(net::EventLoop& loop,
                 Fd socket,
                 net::Hello::Side side,
                 const std::string& secret,
                 const KeepAlive& keep_alive,
                 Events events);

  ~NodeConnection();

  NodeConnection(const NodeConnection&) = delete;
  NodeConnection& operator=(const NodeConnection&) = delete;
  NodeConnection(NodeConnection&&) = delete;
  NodeConnection& operator=(NodeConnection&&) = delete;

  /// Sends it, after the hello.
  void send(const Message& message);

  /// The other side has proved that it knows the secret.
  [[nodiscard]] bool is_admitted() const { return hello_.state() == net::Hello::State::kDone; }

  /// What is there is no launcher of this job, or none of this version.
  [[nodiscard]] bool has_failed_hello() const {
    return hello_.state() == net::Hello::State::kFailed || is_foreign_;
  }

  [[nodiscard]] bool is_lost() const { return !socket_.is_open(); }

  /// The other side's address, for messages.
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  void on_ready();
  void take(std::span<const std::byte> bytes);
  void take_messages();
  void beat();
  void queue(std::span<const std::byte> bytes);
  void flush();
  void lose(const std::string& why);

  net::EventLoop& loop_;
  Fd socket_;
  std::string peer_;
  net::Hello hello_;
  bool is_foreign_ = false;  // It knows the secret, and is no launcher.
  KeepAlive keep_alive_;
  Events events_;
  FrameReader input_{kMaxMessageBytes};
  std::vector<std::byte> output_;
  std::vector<std::byte> waiting_;  // For the hello's end.
  Deadline::Clock::time_point heard_;
  net::EventLoop::TimerId timer_ = 0;
  std::string problem_;  // Of a write; told by the loop.
};

}  // namespace unisono::launch::nodes
