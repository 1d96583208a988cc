#include "unisono/comm/group_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fnv.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/engine/native_engines.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/group_registry.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

Error invalid(const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "new_group: " + problem};
}

rendezvous::Roster roster_of(const Membership& parent, const RankList& list) {
  rendezvous::Roster roster{.rank = 0, .job = parent.roster().job, .members = {}};
  for (std::size_t index = 0; index < list.size(); ++index) {
    roster.members.push_back(parent.roster().members[static_cast<std::size_t>(list[index])]);
    if (list[index] == parent.topology().rank()) {
      roster.rank = static_cast<int>(index);
    }
  }
  return roster;
}

// The members of `list` on this rank's node, in the order of the list.
RankList local_members(const Membership& parent, const RankList& list) {
  RankList local;
  std::copy_if(list.begin(), list.end(), std::back_inserter(local), [&](int rank) {
    return parent.topology().node_of(rank) == parent.topology().node();
  });
  return local;
}

void tell_unmade(Job& job, const GroupSetup& setup, const Error& error) noexcept {
  const health::GroupContacts contacts{
      .group = setup.number, .roster = setup.roster, .control = job.control()};
  health::tell_node(contacts, error);
  if (health::topology_of(setup.roster).n_nodes() == 1) {
    return;
  }
  if (!health::DiagnosticsStore(job.session(), job.store_prefix(setup.number), setup.roster.rank)
           .publish(error, false)) {
    health::tell_other_nodes(contacts, error);
  }
}

}  // namespace

void check_list(const RankList& list, int world_size) {
  if (list.empty()) {
    throw invalid("a list of ranks is empty");
  }
  std::set<int> seen;
  for (const int rank : list) {
    if (rank < 0 || rank >= world_size) {
      throw invalid(fmt::format("rank {} is outside a world of {}", rank, world_size));
    }
    if (!seen.insert(rank).second) {
      throw invalid(fmt::format("rank {} is in a list twice", rank));
    }
  }
}

std::int64_t fingerprint_of(std::span<const RankList> lists) {
  std::uint64_t hash = kFnvStart;
  for (const RankList& list : lists) {
    hash = fnv_step(hash, list.size());
    for (const int rank : list) {
      hash = fnv_step(hash, static_cast<std::uint64_t>(rank));
    }
  }
  return static_cast<std::int64_t>(hash);
}

bool has(const RankList& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

Expectation::Expectation(health::GroupRegistry& groups, std::vector<std::uint32_t> numbers)
    : groups_(groups), numbers_(std::move(numbers)) {
  for (const std::uint32_t number : numbers_) {
    groups_.expect(number);
  }
}

Expectation::~Expectation() {
  for (const std::uint32_t number : numbers_) {
    groups_.forget(number);
  }
}

ControlBlocks::ControlBlocks(Job& job, const Membership& parent, std::span<const RankList> lists)
    : job_(job) {
  for (const RankList& list : lists) {
    offsets_.push_back(-1);
    if (has(list, parent.topology().rank())) {
      try {
        offsets_.back() =
            job.engines().reserve_group(static_cast<int>(local_members(parent, list).size()));
      } catch (const Error& error) {
        offsets_.back() = kNoRoom;
        problem_ = error;
      }
    }
  }
}

void ControlBlocks::check() const {
  if (problem_) {
    throw Error(*problem_);
  }
}

void check_offset(std::int64_t offset, int rank, const Membership& parent) {
  if (offset == kNoRoom) {
    throw Error(ErrorCode::kSystem,
                fmt::format("new_group: rank {} has no room for it in its arena",
                            transport::describe_rank(rank, parent.job_ranks())));
  }
}

ControlBlocks::~ControlBlocks() {
  for (const std::int64_t offset : offsets_) {
    if (!is_kept_ && offset >= 0) {
      job_.engines().release_group(offset);
    }
  }
}

void tell_unmade(Group& parent, const RankList& list, std::uint32_t number, const Error& error) {
  const Membership& membership = parent.membership();
  tell_unmade(*parent.job(),
              {.number = number,
               .roster = roster_of(membership, list),
               .timeout = membership.timeout(),
               .offsets = {}},
              error);
}

std::unique_ptr<Group> make_group(Group& parent,
                                  const RankList& list,
                                  std::uint32_t number,
                                  std::optional<std::chrono::milliseconds> timeout,
                                  const std::function<std::int64_t(int rank)>& offset_of) {
  const Membership& membership = parent.membership();
  GroupSetup setup{.number = number,
                   .roster = roster_of(membership, list),
                   .timeout = timeout.value_or(membership.timeout()),
                   .offsets = {}};
  for (const int member : local_members(membership, list)) {
    setup.offsets.push_back(offset_of(member));
  }
  Job& job = *parent.job();
  try {
    return std::make_unique<Group>(parent.job(), job.make_group(setup));
  } catch (const Error& error) {
    tell_unmade(job, setup, error);
    throw;
  }
}

}  // namespace unisono::comm
