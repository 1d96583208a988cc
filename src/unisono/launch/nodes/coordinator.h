#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/launch/nodes/node_connection.h"
#include "unisono/launch/nodes/node_rendezvous.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/port_reservation.h"
#include "unisono/net/unauthenticated_connections.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch::nodes {

struct CoordinatorOptions {
  net::Address address;  ///< Where the nodes come to.
  std::string secret;    ///< Empty only on loopback.
  KeepAlive keep_alive = {};
  RendezvousOptions rendezvous = {};
  store::TcpServerOptions store;  ///< For the ranks; its port is a free one for each generation.
  bool serves_store = true;       ///< Else rank 0 is to serve it, at a port that is kept free.
  Logger logger = Logger("launcher");
};

/// Where the nodes of a job meet: takes their connections, serves their ranks' store, and carries
/// out what NodeRendezvous decides. Belongs to the loop's thread.
class Coordinator {
 public:
  /// Listens from here on; serves when the loop runs, which must outlive the object.
  ///
  /// Throws net::PortInUse, Error(kSystem).
  Coordinator(net::EventLoop& loop, const CoordinatorOptions& options);

  ~Coordinator();

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  Coordinator(Coordinator&&) = delete;
  Coordinator& operator=(Coordinator&&) = delete;

  [[nodiscard]] const net::Address& address() const { return address_; }

  /// No node is connected any more.
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
  std::vector<std::unique_ptr<NodeConnection>> lost_;  // Until none of them is at work.
  net::UnauthenticatedConnections unauthenticated_;
  NodeId next_id_ = 1;
  net::EventLoop::TimerId timer_ = 0;
  net::EventLoop::TimerId accept_timer_ = 0;
  // Of the present generation.
  std::uint64_t generation_ = 0;
  std::unique_ptr<store::TcpStoreServer> store_;
  std::unique_ptr<net::PortReservation> kept_port_;
  std::uint16_t master_port_ = 0;
};

}  // namespace unisono::launch::nodes
