#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace unisono::health
