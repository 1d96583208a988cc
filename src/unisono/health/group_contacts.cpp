#include "unisono/health/group_contacts.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/health/control_plane.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {
namespace {

constexpr std::chrono::milliseconds kTellPatience{500};

int job_rank(const GroupContacts& contacts, int rank) {
  return contacts.roster.members[static_cast<std::size_t>(rank)].rank;
}

std::vector<int> neighbours(const GroupContacts& contacts) {
  const collective::Topology topology = topology_of(contacts.roster);
  std::vector<int> ranks;
  for (const int rank : topology.local_ranks()) {
    if (rank != topology.rank()) {
      ranks.push_back(job_rank(contacts, rank));
    }
  }
  return ranks;
}

// Of each other node one; the ranks of this node have different ones, as far as there are.
std::vector<int> deputies(const GroupContacts& contacts) {
  const collective::Topology topology = topology_of(contacts.roster);
  const auto local_rank = static_cast<std::size_t>(topology.local_rank());
  std::vector<int> ranks;
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      const std::span<const int> all = topology.ranks_of(node);
      ranks.push_back(job_rank(contacts, all[local_rank % all.size()]));
    }
  }
  return ranks;
}

// Out of memory while giving up, say: then what is closed has to tell it.
template <class Step>
void survive(Step step) noexcept {
  try {
    step();
  } catch (const std::exception&) {
    return;
  }
}

void tell(const GroupContacts& contacts, std::vector<int> job_ranks, const Error& reason) {
  contacts.control.tell(
      std::move(job_ranks), transport::encode_abort(contacts.group, reason), kTellPatience);
}

}  // namespace

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

void tell_rank(const GroupContacts& contacts, int rank, const Error& reason) noexcept {
  survive([&] { tell(contacts, {job_rank(contacts, rank)}, reason); });
}

void tell_node(const GroupContacts& contacts, const Error& reason) noexcept {
  survive([&] { tell(contacts, neighbours(contacts), reason); });
}

void tell_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept {
  survive([&] { tell(contacts, deputies(contacts), reason); });
}

}  // namespace unisono::health
