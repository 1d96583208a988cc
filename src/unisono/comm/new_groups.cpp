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
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

// Every rank's numbers, one after the other.
std::vector<std::int64_t> gather_all(Group& group,
                                     std::vector<std::int64_t> mine,
                                     const char* label,
                                     const Timeout& timeout) {
  std::vector<std::int64_t> all(
      mine.size() * static_cast<std::size_t>(group.membership().topology().world_size()));
  group.run(all_gather_call(group.membership(),
                            as_buffer(std::span(mine)),
                            as_buffer(std::span(all)),
                            {.timeout = timeout, .label = label}));
  return all;
}

// `next` is the first number that each rank has taken. A group has one of its first rank's.
std::vector<std::uint32_t> assign_numbers(const GroupNumbers& own,
                                          std::span<const RankList> lists,
                                          std::vector<std::uint32_t> next) {
  std::vector<std::uint32_t> numbers;
  for (const RankList& list : lists) {
    std::uint32_t& number = next[static_cast<std::size_t>(list.front())];
    numbers.push_back(number);
    number = own.next(number);
  }
  return numbers;
}

// Where each rank has its control blocks. With others this may end well though it fails here.
std::vector<std::int64_t> gather_offsets(Group& parent,
                                         const ControlBlocks& control_blocks,
                                         std::span<const RankList> lists,
                                         const std::vector<std::uint32_t>& numbers,
                                         const Timeout& timeout) {
  try {
    return gather_all(
        parent, control_blocks.offsets(), "the control blocks of new groups", timeout);
  } catch (const Error& error) {
    for (std::size_t index = 0; index < lists.size(); ++index) {
      if (has(lists[index], parent.membership().topology().rank())) {
        tell_unmade(parent, lists[index], numbers[index], error);
      }
    }
    throw;
  }
}

// Makes the groups with these numbers. Those who tell of one know its control block, and so come
// after this rank has begun to expect it.
std::vector<std::unique_ptr<Group>> make(Group& parent,
                                         std::span<const RankList> lists,
                                         const std::vector<std::uint32_t>& numbers,
                                         const Timeout& timeout) {
  const Membership& membership = parent.membership();
  Job& job = *parent.job();
  const int rank = membership.topology().rank();
  const std::size_t n_lists = lists.size();
  std::vector<std::uint32_t> own_numbers;
  for (std::size_t index = 0; index < n_lists; ++index) {
    if (has(lists[index], rank)) {
      own_numbers.push_back(numbers[index]);
    }
  }
  const Expectation expectation(job.groups(), std::move(own_numbers));
  ControlBlocks control_blocks(job, membership, lists);
  const std::vector<std::int64_t> offsets =
      gather_offsets(parent, control_blocks, lists, numbers, timeout);
  control_blocks.check();
  std::size_t at = 0;
  for (int member = 0; member < membership.topology().world_size(); ++member) {
    for (std::size_t index = 0; index < n_lists; ++index) {
      check_offset(offsets[at++], member, membership);
    }
  }
  control_blocks.keep();
  std::vector<std::unique_ptr<Group>> groups(n_lists);
  for (std::size_t index = 0; index < n_lists; ++index) {
    if (!has(lists[index], rank)) {
      continue;
    }
    const auto offset_of = [&offsets, n_lists, index](int member) {
      return offsets[static_cast<std::size_t>(member) * n_lists + index];
    };
    groups[index] = make_group(parent, lists[index], numbers[index], timeout, offset_of);
  }
  return groups;
}

}  // namespace

std::vector<std::unique_ptr<Group>> new_groups(Group& parent,
                                               std::span<const RankList> lists,
                                               Timeout timeout) {
  for (const RankList& list : lists) {
    check_list(list, parent.membership().topology().world_size());
  }
  GroupNumbers& numbers = parent.job()->numbers();
  const int rank = parent.membership().topology().rank();
  const auto n_first = std::count_if(
      lists.begin(), lists.end(), [rank](const RankList& list) { return list.front() == rank; });
  const std::vector<std::int64_t> all = gather_all(parent,
                                                   {numbers.take(static_cast<std::size_t>(n_first)),
                                                    fingerprint_of(lists),
                                                    static_cast<std::int64_t>(lists.size())},
                                                   "the lists of new groups",
                                                   timeout);
  std::vector<std::uint32_t> taken;
  const transport::JobRanks job_ranks = parent.membership().job_ranks();
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (all[at + 1] != all[1] || all[at + 2] != all[2]) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("new_group: rank {} gave other lists of ranks than rank {}",
                              transport::describe_rank(static_cast<int>(at / 3), job_ranks),
                              transport::describe_rank(0, job_ranks)));
    }
    taken.push_back(static_cast<std::uint32_t>(all[at]));
  }
  return make(parent, lists, assign_numbers(numbers, lists, std::move(taken)), timeout);
}

std::unique_ptr<Group> split(Group& parent, int colour, int key, Timeout timeout) {
  // Any rank may turn out to be the first of its colour.
  GroupNumbers& numbers = parent.job()->numbers();
  const std::vector<std::int64_t> all =
      gather_all(parent, {numbers.take(1), colour, key}, "the colours of a split", timeout);
  std::vector<std::uint32_t> taken;
  std::map<std::int64_t, std::vector<std::pair<std::int64_t, int>>> by_colour;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    taken.push_back(static_cast<std::uint32_t>(all[at]));
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
      make(parent, lists, assign_numbers(numbers, lists, std::move(taken)), timeout);
  for (std::unique_ptr<Group>& group : groups) {
    if (group != nullptr) {
      return std::move(group);
    }
  }
  return nullptr;
}

}  // namespace unisono::comm
