#include "unisono/comm/group_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/engine/native_engines.h"
#include "unisono/peers/diagnostics_store.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/rank_table.h"

namespace unisono::comm {
namespace {

Error invalid(const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "new_group: " + problem};
}

// Returns the roster of the new group on this rank, from the entries of the parent's roster.
transport::RankTable roster_of(const GroupState& parent, const RankList& list) {
  transport::RankTable roster{.rank = 0, .job = parent.roster().job, .members = {}};
  for (std::size_t index = 0; index < list.size(); ++index) {
    roster.members.push_back(parent.roster().members[static_cast<std::size_t>(list[index])]);
    if (list[index] == parent.topology().rank()) {
      roster.rank = static_cast<int>(index);
    }
  }
  return roster;
}

// Returns the members of `list` on this rank's node, in the order of the list.
RankList local_members(const GroupState& parent, const RankList& list) {
  RankList local;
  std::copy_if(list.begin(), list.end(), std::back_inserter(local), [&](int rank) {
    return parent.topology().node_of(rank) == parent.topology().node();
  });
  return local;
}

// Reports the error to the node, and to other nodes through the store or, without a store, through
// control connections.
void tell_unmade(Job& job, const GroupSetup& setup, const Error& error) noexcept {
  const peers::GroupContacts contacts{
      .group = setup.number, .roster = setup.roster, .control = job.control()};
  peers::notify_node(contacts, error);
  if (collective::Topology(setup.roster.rank, setup.roster.nodes()).n_nodes() == 1) {
    return;
  }
  if (!peers::DiagnosticsStore(
           store_access(job.session()), job.store_prefix(setup.number), setup.roster.rank)
           .publish(error, false)) {
    peers::notify_other_nodes(contacts, error);
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

Expectation::Expectation(peers::GroupRegistry& groups, std::vector<std::uint32_t> numbers)
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

ControlBlocks::ControlBlocks(Job& job, const GroupState& parent, std::span<const RankList> lists)
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

void check_offset(std::int64_t offset, int rank, const GroupState& parent) {
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

void tell_unmade(OperationQueue& parent,
                 const RankList& list,
                 std::uint32_t number,
                 const Error& error) {
  const GroupState& state = parent.state();
  tell_unmade(*parent.job(),
              {.number = number,
               .roster = roster_of(state, list),
               .timeout = state.timeout(),
               .offsets = {}},
              error);
}

std::unique_ptr<OperationQueue> make_group(OperationQueue& parent,
                                           const RankList& list,
                                           std::uint32_t number,
                                           std::optional<std::chrono::milliseconds> timeout,
                                           const std::function<std::int64_t(int rank)>& offset_of) {
  const GroupState& state = parent.state();
  GroupSetup setup{.number = number,
                   .roster = roster_of(state, list),
                   .timeout = timeout.value_or(state.timeout()),
                   .offsets = {}};
  for (const int member : local_members(state, list)) {
    setup.offsets.push_back(offset_of(member));
  }
  Job& job = *parent.job();
  try {
    return std::make_unique<OperationQueue>(parent.job(), job.make_group(setup));
  } catch (const Error& error) {
    tell_unmade(job, setup, error);
    throw;
  }
}

}  // namespace unisono::comm
