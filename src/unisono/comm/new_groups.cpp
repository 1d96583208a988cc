#include "unisono/comm/new_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/group_lists.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

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
    groups[index] =
        make_group(parent, lists[index], number, timeout, [&offsets, n_lists, index](int member) {
          return offsets[static_cast<std::size_t>(member) * n_lists + index];
        });
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
  const transport::JobRanks job_ranks = parent.links().job_ranks();
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (all[at + 1] != all[1] || all[at + 2] != all[2]) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("new_group: rank {} gave other lists of ranks than rank {}",
                              transport::describe_rank(static_cast<int>(at / 3), job_ranks),
                              transport::describe_rank(0, job_ranks)));
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
