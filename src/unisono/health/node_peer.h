#pragma once

#include "unisono/base/fd.h"

namespace unisono::health {

/// Another rank of this node, and the Unix socket by which ranks of a node tell each other how they
/// are. It ends with the rank's process.
struct NodePeer {
  int rank;  ///< Of the job.
  Fd socket;
};

}  // namespace unisono::health
