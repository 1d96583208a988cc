#include "unisono/health/node_peers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"

namespace unisono::health {

void NodePeers::tell(const rendezvous::Roster& members, std::span<const std::byte> frame) const {
  for (const NodePeer& peer : peers_) {
    const bool is_member = std::any_of(
        members.members.begin(), members.members.end(), [&](const rendezvous::Member& member) {
          return member.rank == peer.rank;
        });
    if (is_member) {
      (void)net::write_some(peer.socket.get(), frame);
    }
  }
}

void NodePeers::tell_abort(const rendezvous::Roster& members,
                           std::uint32_t group,
                           const Error& reason) const noexcept {
  try {
    tell(members, transport::encode_abort(group, reason));
  } catch (const std::exception&) {
    return;  // Out of memory while giving up: the closed sockets have to say it.
  }
}

void NodePeers::tell_leave(const rendezvous::Roster& members, std::uint32_t group) const noexcept {
  try {
    tell(members, transport::encode_leave(group));
  } catch (const std::exception&) {
    return;  // The same.
  }
}

void NodePeers::ask_for_stacks(int job_rank) const noexcept {
  try {
    for (const NodePeer& peer : peers_) {
      if (peer.rank == job_rank) {
        (void)net::write_some(peer.socket.get(), transport::encode_ask());
      }
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say: the report goes without.
  }
}

void NodePeers::close() noexcept {
  for (NodePeer& peer : peers_) {
    peer.socket.reset();
  }
}

}  // namespace unisono::health
