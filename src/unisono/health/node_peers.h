#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::health {

/// Another rank of this node, and the Unix socket by which ranks of a node tell each other how they
/// are. It ends with the rank's process.
struct NodePeer {
  int rank;  ///< Of the job.
  Fd socket;
};

/// The job's other ranks of this node. None of its calls waits: a peer that can't take a frame at
/// once has hundreds before it, or is gone. Thread-safe but for close().
class NodePeers {
 public:
  explicit NodePeers(std::vector<NodePeer> peers) : peers_(std::move(peers)) {}

  [[nodiscard]] std::span<const NodePeer> all() const { return peers_; }

  /// Tells those in `members` why the group of this number has failed here.
  void tell_abort(const rendezvous::Roster& members,
                  std::uint32_t group,
                  const Error& reason) const noexcept;

  /// Tells those in `members` that this rank leaves the group.
  void tell_leave(const rendezvous::Roster& members, std::uint32_t group) const noexcept;

  /// Has a rank show where its threads are.
  void ask_for_stacks(int job_rank) const noexcept;

  /// Ends all connections.
  void close() noexcept;

 private:
  void tell(const rendezvous::Roster& members, std::span<const std::byte> frame) const;

  std::vector<NodePeer> peers_;
};

}  // namespace unisono::health
