#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/launch/nodes/node_rendezvous.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/ports.h"
#include "unisono/net/unauthenticated_connections.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch::nodes {

/// Settings of a Coordinator.
struct CoordinatorOptions {
  net::Address address;  ///< Address on which the coordinator listens.
  std::string secret;    ///< Secret of the job; may be empty on loopback only.
  KeepAlive keep_alive = {};
  RendezvousOptions rendezvous = {};
  store::TcpServerOptions store;  ///< Store of the ranks; each generation gets a free port.
  bool serves_store = true;       ///< False: rank 0 serves the store, on a port that is kept free.
  base::Logger logger = base::Logger("launcher");
};

/// Meeting point of a job's nodes: accepts connections, serves the store of the ranks, and sends
/// the messages that NodeRendezvous decides on.
///
/// The NodeGenerations of node 0 own the object. All functions run on the loop's thread. A store
/// that cannot be served ends the job with an error; an unauthenticated or malformed connection is
/// closed and logged.
class Coordinator {
 public:
  /// Listens at once, and serves while the loop runs. The loop must outlive the object.
  ///
  /// Throws net::PortInUse, Error(kSystem).
  Coordinator(net::EventLoop& loop, const CoordinatorOptions& options);

  ~Coordinator();

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  Coordinator(Coordinator&&) = delete;
  Coordinator& operator=(Coordinator&&) = delete;

  [[nodiscard]] const net::Address& address() const { return address_; }

  /// Returns true if no node is connected.
  [[nodiscard]] bool is_alone() const { return connections_.empty(); }

 private:
  using NodeId = NodeRendezvous::NodeId;

  void accept_all();
  void admit(Fd socket);
  void on_message(NodeId id, const Message& message);
  void on_lost(NodeId id, const std::string& why);
  void on_time();
  void carry_out();
  void complete(Start& order);
  void stop_listening();

  net::EventLoop& loop_;
  CoordinatorOptions options_;
  Fd listener_;
  net::Address address_;
  NodeRendezvous rendezvous_;
  std::map<NodeId, std::unique_ptr<NodeConnection>> connections_;
  std::vector<std::unique_ptr<NodeConnection>> lost_;  // Kept until no connection is in a callback.
  net::UnauthenticatedConnections unauthenticated_;
  NodeId next_id_ = 1;
  net::EventLoop::TimerId timer_ = 0;
  net::EventLoop::TimerId accept_timer_ = 0;
  // State of the present generation.
  std::uint64_t generation_ = 0;
  std::unique_ptr<store::TcpStoreServer> store_;
  std::unique_ptr<net::PortReservation> kept_port_;
  std::uint16_t master_port_ = 0;
};

}  // namespace unisono::launch::nodes
