#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/messages.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"

namespace unisono::launch::nodes {

/// Connection between a node and the coordinator, which begins with the hello; see
/// docs/design/nodes.md.
///
/// The owner is a Coordinator or a NodeMember. All functions and events run on the loop's thread. A
/// failed hello, a malformed message, a broken socket and missing heartbeats are reported once, by
/// `on_lost`.
class NodeConnection {
 public:
  struct Events {
    std::function<void(Message message)> on_message;
    /// Called at most once, and no event follows. Not called from the constructor or from send().
    std::function<void(const std::string& why)> on_lost;
  };

  /// Takes a connected socket. `loop` must outlive the object. A callback in `events` must not
  /// destroy the object.
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

  /// Sends the message, after the hello.
  void send(const Message& message);

  /// Returns true once the peer has proved knowledge of the secret.
  [[nodiscard]] bool is_admitted() const { return hello_.state() == net::Hello::State::kDone; }

  /// Returns true if the peer is no launcher of this job or has another version.
  [[nodiscard]] bool has_failed_hello() const {
    return hello_.state() == net::Hello::State::kFailed || is_foreign_;
  }

  [[nodiscard]] bool is_lost() const { return !socket_.is_open(); }

  /// Returns the address of the peer, for messages.
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
  bool is_foreign_ = false;  // The peer has the secret but is not a launcher.
  KeepAlive keep_alive_;
  Events events_;
  FrameReader input_{kMaxMessageBytes};
  std::vector<std::byte> output_;
  std::vector<std::byte> waiting_;  // Output that waits for the end of the hello.
  Deadline::Clock::time_point heard_;
  net::EventLoop::TimerId timer_ = 0;
  std::string problem_;  // Problem of a write; the loop reports it.
};

}  // namespace unisono::launch::nodes
