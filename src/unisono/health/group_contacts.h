#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

class ControlPlane;

/// Where a member is reached. Throws Error(kCorruptData) where its address is none.
[[nodiscard]] transport::RankAddress address_of(const rendezvous::Member& member);

/// Of all members, by rank.
[[nodiscard]] std::vector<transport::RankAddress> addresses_of(const rendezvous::Roster& roster);

/// On which nodes the ranks are.
[[nodiscard]] collective::Topology topology_of(const rendezvous::Roster& roster);

/// A group, and by what its ranks reach each other beside its operations. The references outlive
/// it.
struct GroupContacts {
  std::uint32_t group;  ///< The group's number.
  const rendezvous::Roster& roster;
  ControlPlane& control;
};

// What a rank tells the others of a group, by their watchers: they hear it whatever they wait for.
// Each waits until it has been written, for half a second at most: then it arrives, also where this
// process ends. A rank that can't be reached by then is not told.

/// Tells a rank of the group why it failed.
void tell_rank(const GroupContacts& contacts, int rank, const Error& reason) noexcept;

/// Tells this node's other ranks of the group.
void tell_node(const GroupContacts& contacts, const Error& reason) noexcept;

/// Where no store can tell them: tells a rank of each other node of the group, which passes it on
/// there.
void tell_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept;

}  // namespace unisono::health
