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
#include "unisono/launch/messages.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch::nodes {

/// Settings of a NodeMember.
struct MemberOptions {
  std::string host;  ///< Host of the coordinator, resolved anew for each attempt.
  std::uint16_t port = 0;
  std::string secret;
  Join join = {};
  KeepAlive keep_alive = {};
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  ///< For the first connection.
  /// Same meaning as in RendezvousOptions.
  std::chrono::milliseconds report_after = std::chrono::seconds(5);
  std::string hint = {};  ///< Advice for a coordinator that cannot be reached.
};

/// Connection of a node to the coordinator. Connects again until an attempt succeeds, and queues
/// received messages for the owner.
///
/// NodeGenerations owns the object. All functions run on the loop's thread. A final failure is
/// reported by problem().
class NodeMember {
 public:
  /// Connects while the loop runs. The loop must outlive the object.
  NodeMember(net::EventLoop& loop, const MemberOptions& options);

  ~NodeMember();

  NodeMember(const NodeMember&) = delete;
  NodeMember& operator=(const NodeMember&) = delete;
  NodeMember(NodeMember&&) = delete;
  NodeMember& operator=(NodeMember&&) = delete;

  /// Returns the next received message, or std::nullopt.
  [[nodiscard]] std::optional<Message> take();

  /// Sends the message; has no effect without a connection.
  void send(const Message& message);

  /// Returns the reason for which there is no connection and no further attempt; empty while a
  /// connection exists or is possible.
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
