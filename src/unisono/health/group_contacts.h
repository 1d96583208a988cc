#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/collective/topology.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

/// Where a member is reached. Throws Error(kCorruptData) where its address is none.
[[nodiscard]] transport::RankAddress address_of(const rendezvous::Member& member);

/// Of all members, by rank.
[[nodiscard]] std::vector<transport::RankAddress> addresses_of(const rendezvous::Roster& roster);

/// On which nodes the ranks are.
[[nodiscard]] collective::Topology topology_of(const rendezvous::Roster& roster);

/// What a rank needs to speak to the other ranks of a group, by connections of its own. The
/// references outlive it.
struct GroupContacts {
  std::uint32_t group;  ///< The group's number.
  const rendezvous::Roster& roster;
  const std::string& secret;  ///< For the hello.

  [[nodiscard]] net::HelloInfo hello(const char* purpose) const {
    return {.job = roster.job, .purpose = purpose, .rank = roster.self().rank, .group = group};
  }
};

}  // namespace unisono::health
