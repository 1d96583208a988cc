#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/comm/doorkeeper.h"
#include "unisono/comm/peer_watch.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::comm {

/// What a Watcher works with. All of it outlives it.
struct WatcherParts {
  const rendezvous::Roster& roster;
  const std::string& secret;
  int data_listener;
  const std::vector<shm::NodePeer>& peers;
  tcp::Mesh& mesh;
  tcp::MessageMesh& message_mesh;
  engine::RankStatus& ranks;
  transport::Failure& failure;
  std::function<void()> wake;  ///< Makes the group's waits look again.
};

/// A rank's thread beside its computation: lets in the connections of other nodes' ranks, and sees
/// when a rank of this node leaves, fails or dies.
class Watcher {
 public:
  explicit Watcher(const WatcherParts& parts);
  ~Watcher();

  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  Watcher(Watcher&&) = delete;
  Watcher& operator=(Watcher&&) = delete;

  /// Sends a frame to every peer of the node that can take it at once. Any thread.
  void tell_peers(const std::function<std::vector<std::byte>()>& encode_frame) const noexcept;

 private:
  void deliver(const net::HelloInfo& theirs, Fd socket);

  WatcherParts parts_;
  net::EventLoop loop_;
  Doorkeeper doorkeeper_;
  std::vector<std::unique_ptr<PeerWatch>> watches_;
  std::thread thread_;
};

}  // namespace unisono::comm
