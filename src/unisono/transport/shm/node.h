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

/// Exchanges arenas with the other ranks of the node.
///
/// `listener` is the abstract Unix socket that this rank told the others of. Only processes of this
/// user that prove the job's secret get in; strangers are turned away and do no harm. Returns the
/// peers in the order of `peers`, who all do the same at this time.
///
/// Throws Error(kTimeout) that names the ranks that did not come, kUnauthenticated, kIncompatible,
/// kPeerLost.
[[nodiscard]] std::vector<NodePeer> meet_node(int rank,
                                              const std::vector<NodeEndpoint>& peers,
                                              const std::shared_ptr<const Arena>& arena,
                                              int listener,
                                              const std::string& job,
                                              const std::string& secret,
                                              Deadline deadline);

}  // namespace unisono::shm
