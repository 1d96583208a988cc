#pragma once

#include <cstddef>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/node_peers.h"
#include "unisono/health/stack_dump.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::health {

/// Watches one rank of this node: by the socket to it, and by its process where that is another.
/// Belongs to the event loop's thread once that runs.
class PeerWatch {
 public:
  PeerWatch(net::EventLoop& loop,
            const NodePeer& peer,
            const rendezvous::Member& member,
            GroupRegistry& groups,
            StackDump& stacks);

 private:
  void read_socket();
  void handle_frames();
  void note_end();
  void stop_watching();

  net::EventLoop& loop_;
  const NodePeer& peer_;
  GroupRegistry& groups_;
  StackDump& stacks_;
  Fd process_;
  bool is_watching_ = true;
  std::vector<std::byte> received_;
};

}  // namespace unisono::health
