#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::nodes {

struct MemberOptions {
  std::string host;  ///< The coordinator's, looked up anew for each attempt.
  std::uint16_t port = 0;
  std::string secret;
  Join join = {};
  KeepAlive keep_alive = {};
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  ///< For the first connection.
  std::chrono::milliseconds report_after = std::chrono::seconds(5);   ///< As RendezvousOptions.
  std::string hint = {};  ///< What to do where the coordinator can't be reached.
};

/// A node's connection to the coordinator, tried again until there is one. What comes is kept until
/// the owner takes it. Belongs to the loop's thread.
class NodeMember {
 public:
  /// Connects when the loop runs, which must outlive the object.
  NodeMember(net::EventLoop& loop, const MemberOptions& options);

  ~NodeMember();

  NodeMember(const NodeMember&) = delete;
  NodeMember& operator=(const NodeMember&) = delete;
  NodeMember(NodeMember&&) = delete;
  NodeMember& operator=(NodeMember&&) = delete;

  /// The next message that has come.
  [[nodiscard]] std::optional<Message> take();

  /// Nothing where there is no connection.
  void send(const Message& message);

  /// Why there is no connection and will be none; empty while there may be one.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void connect();
  void on_connecting(const net::Address& address);
  void introduce();
  void on_lost(const std::string& why);
  void try_again(const std::string& reason);
  void drop_attempt();
  [[nodiscard]] std::string place() const;

  net::EventLoop& loop_;
  MemberOptions options_;
  Deadline::Clock::time_point begin_;
  Deadline end_;
  std::chrono::milliseconds report_after_;
  std::size_t n_attempts_ = 0;
  Fd attempt_;
  bool is_coordinator_here_ = false;
  net::EventLoop::TimerId timer_ = 0;
  std::unique_ptr<NodeConnection> connection_;
  std::deque<Message> received_;
  std::string problem_;
};

}  // namespace unisono::launch::nodes
