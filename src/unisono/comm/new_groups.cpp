#include "unisono/comm/new_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group_setup.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/job.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

// Returns the numbers of all ranks in order of rank.
std::vector<std::int64_t> gather_all(OperationQueue& group,
                                     std::vector<std::int64_t> mine,
                                     const char* label,
                                     const Timeout& timeout) {
  std::vector<std::int64_t> all(mine.size() *
                                static_cast<std::size_t>(group.state().topology().world_size()));
  group.run(all_gather_call(group.state(),
                            as_buffer(std::span(mine)),
                            as_buffer(std::span(all)),
                            {.timeout = timeout, .label = label}));
  return all;
}

// `next` is the first number that each rank has taken. A group gets a number of its first rank.
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

// Returns the offsets of all ranks' control blocks. Other ranks may succeed in the exchange
// although this rank fails, so that this rank reports the failure.
std::vector<std::int64_t> gather_offsets(OperationQueue& parent,
                                         const ControlBlocks& control_blocks,
                                         std::span<const RankList> lists,
                                         const std::vector<std::uint32_t>& numbers,
                                         const Timeout& timeout) {
  try {
    return gather_all(
        parent, control_blocks.offsets(), "the control blocks of new groups", timeout);
  } catch (const Error& error) {
    for (std::size_t index = 0; index < lists.size(); ++index) {
      if (has(lists[index], parent.state().topology().rank())) {
        tell_unmade(parent, lists[index], numbers[index], error);
      }
    }
    throw;
  }
}

// Makes the groups with these numbers. Reports about a group come from ranks that have read this
// rank's control block, so they arrive after this rank has begun to expect the group.
std::vector<std::unique_ptr<OperationQueue>> make(OperationQueue& parent,
                                                  std::span<const RankList> lists,
                                                  const std::vector<std::uint32_t>& numbers,
                                                  const Timeout& timeout) {
  const GroupState& state = parent.state();
  Job& job = *parent.job();
  const int rank = state.topology().rank();
  const std::size_t n_lists = lists.size();
  std::vector<std::uint32_t> own_numbers;
  for (std::size_t index = 0; index < n_lists; ++index) {
    if (has(lists[index], rank)) {
      own_numbers.push_back(numbers[index]);
    }
  }
  const Expectation expectation(job.groups(), std::move(own_numbers));
  ControlBlocks control_blocks(job, state, lists);
  const std::vector<std::int64_t> offsets =
      gather_offsets(parent, control_blocks, lists, numbers, timeout);
  control_blocks.check();
  std::size_t at = 0;
  for (int member = 0; member < state.topology().world_size(); ++member) {
    for (std::size_t index = 0; index < n_lists; ++index) {
      check_offset(offsets[at++], member, state);
    }
  }
  control_blocks.keep();
  std::vector<std::unique_ptr<OperationQueue>> groups(n_lists);
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

std::vector<std::unique_ptr<OperationQueue>> new_groups(OperationQueue& parent,
                                                        std::span<const RankList> lists,
                                                        Timeout timeout) {
  for (const RankList& list : lists) {
    check_list(list, parent.state().topology().world_size());
  }
  GroupNumbers& numbers = parent.job()->numbers();
  const int rank = parent.state().topology().rank();
  const auto n_first = std::count_if(
      lists.begin(), lists.end(), [rank](const RankList& list) { return list.front() == rank; });
  const std::vector<std::int64_t> all = gather_all(parent,
                                                   {numbers.take(static_cast<std::size_t>(n_first)),
                                                    fingerprint_of(lists),
                                                    static_cast<std::int64_t>(lists.size())},
                                                   "the lists of new groups",
                                                   timeout);
  std::vector<std::uint32_t> taken;
  const transport::JobRanks job_ranks = parent.state().job_ranks();
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

std::unique_ptr<OperationQueue> split(OperationQueue& parent,
                                      int colour,
                                      int key,
                                      Timeout timeout) {
  // Any rank may be the first of its color.
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
  std::vector<std::unique_ptr<OperationQueue>> groups =
      make(parent, lists, assign_numbers(numbers, lists, std::move(taken)), timeout);
  for (std::unique_ptr<OperationQueue>& group : groups) {
    if (group != nullptr) {
      return std::move(group);
    }
  }
  return nullptr;
}

namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

// Interval of the checks for other events that end a wait.
constexpr std::chrono::milliseconds kSlice{100};

// Data that a rank publishes.
struct Entry {
  std::int32_t rank;  // Rank in the parent.
  std::int64_t fingerprint;
  std::int64_t offset;  // Offset of the rank's control block in its arena.
};

std::string as_text(ByteWriter writer) {
  const std::vector<std::byte> bytes = std::move(writer).bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string encode(const Entry& entry) {
  ByteWriter writer;
  writer.put(entry.rank);
  writer.put(entry.fingerprint);
  writer.put(entry.offset);
  return as_text(std::move(writer));
}

Error foreign_keys() {
  return {ErrorCode::kCorruptData,
          "new_group: the group's keys in the store hold something else; does another group use "
          "the same prefix?"};
}

// Throws Error(kCorruptData) if another user has written to the key.
std::vector<Entry> decode_entries(std::string_view text) {
  std::vector<Entry> entries;
  ByteReader reader(std::as_bytes(std::span(text)));
  while (!reader.rest().empty()) {
    const auto rank = reader.get<std::int32_t>();
    const auto fingerprint = reader.get<std::int64_t>();
    const auto offset = reader.get<std::int64_t>();
    if (!rank || !fingerprint || !offset) {
      throw foreign_keys();
    }
    entries.push_back({.rank = *rank, .fingerprint = *fingerprint, .offset = *offset});
  }
  return entries;
}

// The keys of a group in the store:
//   number    the number of the group and the list's fingerprint, from the list's first rank
//   members   the entries of all members, appended
//   count     number of members that have arrived
//   ready     the members, as read by all ranks
class StoreExchange {
 public:
  StoreExchange(store::Store& store, OperationQueue& parent, const RankList& list)
      : store_(store),
        parent_(parent),
        list_(list),
        rank_(parent.state().topology().rank()),
        fingerprint_(fingerprint_of(std::span(&list, 1))) {}

  [[nodiscard]] std::uint32_t agree_on_number(Deadline deadline) {
    if (list_.front() == rank_) {
      ByteWriter mine;
      mine.put(parent_.job()->numbers().take(1));
      mine.put(fingerprint_);
      return read_number(store_.compare_set("number", "", as_text(std::move(mine))));
    }
    const std::optional<std::string> number = get("number", deadline);
    if (!number) {
      throw missing({});
    }
    return read_number(*number);
  }

  // The rank that completes the group, or finds that its lists differ, publishes the members.
  void join(std::int64_t offset) {
    store_.append("members",
                  encode({.rank = rank_, .fingerprint = fingerprint_, .offset = offset}));
    const std::int64_t count = store_.add("count", 1);
    if (!is_common_ || count == static_cast<std::int64_t>(list_.size())) {
      (void)store_.compare_set("ready", "", store_.try_get("members").value_or(""));
    }
  }

  // Returns all members. Throws if their lists differ.
  [[nodiscard]] std::vector<Entry> wait(Deadline deadline) {
    const std::optional<std::string> ready = get("ready", deadline);
    if (!ready) {
      throw missing(decode_entries(store_.try_get("members").value_or("")));
    }
    std::vector<Entry> entries = decode_entries(*ready);
    for (const Entry& entry : entries) {
      if (entry.fingerprint != first_fingerprint_) {
        throw Error(ErrorCode::kMismatch,
                    fmt::format("new_group: rank {} gave another list of ranks than the group's "
                                "first rank; this is rank {}, with [{}]",
                                name_of(entry.rank),
                                name_of(rank_),
                                fmt::join(list_, ", ")));
      }
    }
    return entries;
  }

 private:
  // Returns std::nullopt after the deadline. Waits in slices, because the store does not detect
  // dead ranks and interruptions.
  [[nodiscard]] std::optional<std::string> get(const std::string& key, Deadline deadline) {
    while (true) {
      try {
        return store_.get(key, earlier(deadline, Deadline::after(kSlice)));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) {
          throw;
        }
      }
      if (deadline.has_passed()) {
        return std::nullopt;
      }
      parent_.state().check_peers();
      parent_.check_open();
      check_interruption();
    }
  }

  [[nodiscard]] std::uint32_t read_number(std::string_view text) {
    ByteReader reader(std::as_bytes(std::span(text)));
    const auto number = reader.get<std::uint32_t>();
    const auto fingerprint = reader.get<std::int64_t>();
    if (!number || !fingerprint || !reader.rest().empty()) {
      throw foreign_keys();
    }
    first_fingerprint_ = *fingerprint;
    is_common_ = *fingerprint == fingerprint_;
    return *number;
  }

  [[nodiscard]] std::string name_of(int rank) const {
    return transport::describe_rank(rank, parent_.state().job_ranks());
  }

  [[nodiscard]] Error missing(const std::vector<Entry>& here) const {
    RankList absent;
    std::copy_if(list_.begin(), list_.end(), std::back_inserter(absent), [&](int rank) {
      return rank != rank_ && std::none_of(here.begin(), here.end(), [rank](const Entry& entry) {
               return entry.rank == rank;
             });
    });
    std::vector<std::string> names;
    for (const int rank : absent) {
      names.push_back(name_of(rank));
    }
    return {ErrorCode::kTimeout,
            fmt::format("new_group: rank {} timed out waiting for {} {} of [{}]",
                        name_of(rank_),
                        absent.size() == 1 ? "rank" : "ranks",
                        fmt::join(names, ", "),
                        fmt::join(list_, ", "))};
  }

  store::Store& store_;
  OperationQueue& parent_;
  const RankList& list_;
  int rank_;
  std::int64_t fingerprint_;
  std::int64_t first_fingerprint_ = 0;
  bool is_common_ = true;
};

std::int64_t offset_of(const std::vector<Entry>& entries, int rank) {
  const auto entry = std::find_if(entries.begin(), entries.end(), [rank](const Entry& candidate) {
    return candidate.rank == rank;
  });
  if (entry == entries.end()) {
    throw foreign_keys();
  }
  return entry->offset;
}

}  // namespace

std::unique_ptr<OperationQueue> create_group_via_store(store::Store& store,
                                                       OperationQueue& parent,
                                                       const RankList& list,
                                                       Timeout timeout) {
  const GroupState& state = parent.state();
  parent.check_open();
  check_list(list, state.topology().world_size());
  if (!has(list, state.topology().rank())) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("new_group: rank {} is not in [{}], whose ranks alone meet in the store",
                    transport::describe_rank(state.topology().rank(), state.job_ranks()),
                    fmt::join(list, ", ")));
  }
  const Deadline deadline = Deadline::after(timeout.value_or(state.timeout()));
  StoreExchange exchange(store, parent, list);
  const std::uint32_t number = exchange.agree_on_number(deadline);
  Job& job = *parent.job();
  const Expectation expectation(job.groups(), {number});
  ControlBlocks control_blocks(job, state, std::span(&list, 1));
  exchange.join(control_blocks.offsets().front());
  control_blocks.keep();
  const std::vector<Entry> entries = exchange.wait(deadline);
  control_blocks.check();
  for (const Entry& entry : entries) {
    check_offset(entry.offset, entry.rank, state);
  }
  return make_group(
      parent, list, number, timeout, [&entries](int rank) { return offset_of(entries, rank); });
}

}  // namespace unisono::comm
