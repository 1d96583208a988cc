#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::shm {

/// Another rank of this node, by its connection of the meeting.
struct NodePeer {
  int rank;
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
  std::int64_t arena_bytes;  ///< How large its arena is to be.
  int listener;              ///< The abstract Unix socket whose name the roster has.
  std::string job;
  std::string secret;
};

/// Gives all ranks of a node their shared memory. The lowest rank makes it and hands it out once
/// all others have connected to it; all return when all have mapped it. So a rank exchanges a fixed
/// number of messages, however many ranks the node has. Only processes of this user that prove the
/// job's secret get in; strangers are turned away and do no harm.
///
/// `peers` are the node's other ranks, in order. `met` gets those with which this rank has a
/// connection; each of them expects an abort frame where the caller's meeting fails.
///
/// Throws Error(kTimeout) that names the ranks that did not come, kUnauthenticated, kIncompatible,
/// kPeerLost, kSystem; or what another rank failed for.
[[nodiscard]] NodeMemory meet_node(const NodeSelf& self,
                                   const std::vector<NodeEndpoint>& peers,
                                   Deadline deadline,
                                   std::vector<NodePeer>& met);

}  // namespace unisono::shm
