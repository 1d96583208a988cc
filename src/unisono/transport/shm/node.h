#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {

/// Another rank of this node: its memory, and the socket that tells of its end.
struct NodePeer {
  int rank;
  std::shared_ptr<const Arena> arena;
  Fd socket;
};

/// Where a rank's node peers reach it.
struct NodeEndpoint {
  int rank;
  std::string socket;     ///< Name of its abstract Unix socket.
  std::string name = {};  ///< For messages: "rank 2 (pid 4123 on node-a)".
  pid_t pid = 0;          ///< 0: not known.
};

/// What a rank brings to the meeting of its node.
struct NodeSelf {
  int rank;
  std::shared_ptr<const Arena> arena;
  int listener;  ///< The abstract Unix socket that it told the others of.
  std::string job;
  std::string secret;
};

/// Exchanges arenas with the other ranks of the node. Only processes of this user that prove the
/// job's secret get in; strangers are turned away and do no harm. Adds the peers to `met`, by rank;
/// they all do the same at this time.
///
/// Throws Error(kTimeout) that names the ranks that did not come, kUnauthenticated, kIncompatible,
/// kPeerLost; then some are in `met`.
void meet_node(const NodeSelf& self,
               const std::vector<NodeEndpoint>& peers,
               Deadline deadline,
               std::vector<NodePeer>& met);

}  // namespace unisono::shm
