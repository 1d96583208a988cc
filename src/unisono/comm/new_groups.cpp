#include "unisono/comm/new_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/shm/board.h"

namespace unisono::comm {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;
using RankList = std::vector<int>;

// Every rank's numbers, one after the other.
std::vector<std::int64_t> gather_all(Group& group,
                                     std::vector<std::int64_t> mine,
                                     const char* label,
                                     const Timeout& timeout) {
  std::vector<std::int64_t> all(mine.size() *
                                static_cast<std::size_t>(group.links().topology().world_size()));
  group.run(all_gather_call(group.links(),
                            as_buffer(std::span(mine)),
                            as_buffer(std::span(all)),
                            {.timeout = timeout, .label = label}));
  return all;
}

Error invalid(const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "new_group: " + problem};
}

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

// FNV-1a over the lists; equal lists have equal fingerprints.
std::int64_t fingerprint_of(std::span<const RankList> lists) {
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
  };
  for (const RankList& list : lists) {
    mix(static_cast<std::int64_t>(list.size()));
    for (const int rank : list) {
      mix(rank);
    }
  }
  return static_cast<std::int64_t>(hash);
}

rendezvous::Roster roster_of(const Links& parent, const RankList& list) {
  rendezvous::Roster roster{.rank = 0, .job = parent.roster().job, .members = {}};
  for (std::size_t index = 0; index < list.size(); ++index) {
    roster.members.push_back(parent.roster().members[static_cast<std::size_t>(list[index])]);
    if (list[index] == parent.topology().rank()) {
      roster.rank = static_cast<int>(index);
    }
  }
  return roster;
}

// The members of `list` on this rank's node, as ranks of the parent, in the order of the list.
RankList local_members(const Links& parent, const RankList& list) {
  RankList local;
  std::copy_if(list.begin(), list.end(), std::back_inserter(local), [&](int rank) {
    return parent.topology().node_of(rank) == parent.topology().node();
  });
  return local;
}

bool has(const RankList& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

// Memory for the boards of those groups that this rank is in; given back unless they are made.
class Boards {
 public:
  Boards(Job& job, const Links& parent, std::span<const RankList> lists) : job_(job) {
    for (const RankList& list : lists) {
      offsets_.push_back(-1);
      if (has(list, parent.topology().rank())) {
        offsets_.back() = job.reserve_board(static_cast<int>(local_members(parent, list).size()));
      }
    }
  }

  ~Boards() {
    for (const std::int64_t offset : offsets_) {
      if (!is_kept_ && offset >= 0) {
        job_.memory()->release(offset);
      }
    }
  }

  Boards(const Boards&) = delete;
  Boards& operator=(const Boards&) = delete;
  Boards(Boards&&) = delete;
  Boards& operator=(Boards&&) = delete;

  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }

  // Others know of the memory now.
  void keep() { is_kept_ = true; }

 private:
  Job& job_;
  std::vector<std::int64_t> offsets_;
  bool is_kept_ = false;
};

// Makes the groups with numbers from `first` on, which all ranks agree on.
std::vector<std::unique_ptr<Group>> make(Group& parent,
                                         std::span<const RankList> lists,
                                         std::uint32_t first,
                                         const Timeout& timeout) {
  const Links& links = parent.links();
  Job& job = *parent.job();
  const int rank = links.topology().rank();
  const std::size_t n_lists = lists.size();
  job.groups().expect(first, static_cast<std::uint32_t>(n_lists));
  Boards boards(job, links, lists);
  const std::vector<std::int64_t> offsets =
      gather_all(parent, boards.offsets(), "the boards of new groups", timeout);
  boards.keep();
  std::vector<std::unique_ptr<Group>> groups(n_lists);
  for (std::size_t index = 0; index < n_lists; ++index) {
    const auto number = first + static_cast<std::uint32_t>(index);
    if (!has(lists[index], rank)) {
      job.groups().remove(number);
      continue;
    }
    GroupSetup setup{.number = number,
                     .roster = roster_of(links, lists[index]),
                     .timeout = timeout.value_or(links.timeout()),
                     .offsets = {}};
    for (const int member : local_members(links, lists[index])) {
      setup.offsets.push_back(offsets[static_cast<std::size_t>(member) * n_lists + index]);
    }
    groups[index] = std::make_unique<Group>(parent.job(), job.make_group(std::move(setup)));
  }
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<Group>> new_groups(Group& parent,
                                               std::span<const RankList> lists,
                                               Timeout timeout) {
  for (const RankList& list : lists) {
    check_list(list, parent.links().topology().world_size());
  }
  const std::vector<std::int64_t> all =
      gather_all(parent,
                 {static_cast<std::int64_t>(parent.job()->groups().next_number()),
                  fingerprint_of(lists),
                  static_cast<std::int64_t>(lists.size())},
                 "the lists of new groups",
                 timeout);
  std::int64_t first = 0;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (all[at + 1] != all[1] || all[at + 2] != all[2]) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("new_group: rank {} gave other lists of ranks than rank 0", at / 3));
    }
    first = std::max(first, all[at]);
  }
  return make(parent, lists, static_cast<std::uint32_t>(first), timeout);
}

std::unique_ptr<Group> split(Group& parent, int colour, int key, Timeout timeout) {
  const std::vector<std::int64_t> all =
      gather_all(parent,
                 {static_cast<std::int64_t>(parent.job()->groups().next_number()), colour, key},
                 "the colours of a split",
                 timeout);
  std::int64_t first = 0;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, int>>> by_colour;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    first = std::max(first, all[at]);
    if (all[at + 1] >= 0) {
      by_colour[all[at + 1]].emplace_back(all[at + 2], static_cast<int>(at / 3));
    }
  }
  std::vector<RankList> lists;
  for (auto& [unused, members] : by_colour) {
    std::sort(members.begin(), members.end());
    RankList& list = lists.emplace_back();
    for (const auto& [member_key, rank] : members) {
      list.push_back(rank);
    }
  }
  std::vector<std::unique_ptr<Group>> groups =
      make(parent, lists, static_cast<std::uint32_t>(first), timeout);
  for (std::unique_ptr<Group>& group : groups) {
    if (group != nullptr) {
      return std::move(group);
    }
  }
  return nullptr;
}

}  // namespace unisono::comm
