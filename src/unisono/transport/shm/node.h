#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::shm {

/// The connection to another rank of this node from the meeting.
struct NodePeer {
  int rank;
  Fd socket;
};

/// Address of a rank for the other ranks of the node.
struct NodeEndpoint {
  int rank;
  std::string socket;     ///< Name of its abstract Unix socket.
  std::string name = {};  ///< For messages: "rank 2 (pid 4123 on node-a)".
  pid_t pid = 0;          ///< 0 if unknown.
};

/// This rank's input to the meeting of the node.
struct NodeSelf {
  int rank;
  std::int64_t arena_bytes;  ///< Size of the rank's arena in bytes.
  int listener;              ///< Listening abstract Unix socket with the name in the roster.
  std::string job;
  std::string secret;
};

/// Creates the shared memory of a node's ranks. The lowest rank creates the file and sends the
/// descriptor once all others have connected; the call returns on all ranks when all have mapped
/// the file. Each rank except the lowest exchanges a fixed number of messages, however many ranks
/// the node has. Only processes of the same user that prove the job's secret are admitted; other
/// connections are closed without effect.
///
/// `peers` are the node's other ranks, in order. The call appends the ranks with a connection to
/// `met`, even on failure. Each of these ranks expects an abort frame if the meeting of the caller
/// fails.
///
/// Blocks until the deadline at most. Throws Error(kTimeout), which names the missing ranks,
/// Error(kUnauthenticated), Error(kIncompatible), Error(kPeerLost), Error(kSystem), or the error of
/// another rank.
[[nodiscard]] NodeMemory meet_node(const NodeSelf& self,
                                   const std::vector<NodeEndpoint>& peers,
                                   Deadline deadline,
                                   std::vector<NodePeer>& met);

}  // namespace unisono::shm
