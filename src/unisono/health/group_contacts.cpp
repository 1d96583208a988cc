#include "unisono/health/group_contacts.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

transport::RankAddress address_of(const rendezvous::Member& member) {
  const std::optional<net::Address> address = net::Address::parse(member.address, member.port);
  if (!address) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} gave \"{}\" as its address, which is none",
                            rendezvous::describe(member),
                            member.address));
  }
  return {.job_rank = member.rank, .address = *address, .name = rendezvous::describe(member)};
}

std::vector<transport::RankAddress> addresses_of(const rendezvous::Roster& roster) {
  std::vector<transport::RankAddress> addresses;
  for (const rendezvous::Member& member : roster.members) {
    addresses.push_back(address_of(member));
  }
  return addresses;
}

collective::Topology topology_of(const rendezvous::Roster& roster) {
  std::vector<std::string> nodes;
  for (const rendezvous::Member& member : roster.members) {
    nodes.push_back(member.node);
  }
  return {roster.rank, nodes};
}

}  // namespace unisono::health
