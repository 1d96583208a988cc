#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/comm/group.h"
#include "unisono/comm/group_lists.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/new_groups.h"
#include "unisono/store/store.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

using Timeout = std::optional<std::chrono::milliseconds>;

// Between looks at what else may end a wait.
constexpr std::chrono::milliseconds kSlice{100};

// What a rank tells the others.
struct Entry {
  std::int32_t rank;  // In the parent.
  std::int64_t fingerprint;
  std::int64_t offset;  // Of its control block, in its arena.
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

// The keys of one group:
//   number    its number and the fingerprint of its list, from the list's first rank
//   members   everybody's entry, appended
//   count     how many have come
//   ready     the members: what all ranks look at
class StoreExchange {
 public:
  StoreExchange(store::Store& store, Group& parent, const RankList& list)
      : store_(store),
        parent_(parent),
        list_(list),
        rank_(parent.membership().topology().rank()),
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

  // Who completes the group, or sees that it can't be, publishes what there is.
  void join(std::int64_t offset) {
    store_.append("members",
                  encode({.rank = rank_, .fingerprint = fingerprint_, .offset = offset}));
    const std::int64_t count = store_.add("count", 1);
    if (!is_common_ || count == static_cast<std::int64_t>(list_.size())) {
      (void)store_.compare_set("ready", "", store_.try_get("members").value_or(""));
    }
  }

  // All members, whose lists are the same.
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
  // Nothing if it does not come. The store knows nothing of ranks that die, and of interruptions.
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
      parent_.membership().listen();
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
    return transport::describe_rank(rank, parent_.membership().job_ranks());
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
            fmt::format("new_group: rank {} waited in vain for {} {} of [{}]",
                        name_of(rank_),
                        absent.size() == 1 ? "rank" : "ranks",
                        fmt::join(names, ", "),
                        fmt::join(list_, ", "))};
  }

  store::Store& store_;
  Group& parent_;
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

std::unique_ptr<Group> create_group_via_store(store::Store& store,
                                              Group& parent,
                                              const RankList& list,
                                              Timeout timeout) {
  const Membership& membership = parent.membership();
  parent.check_open();
  check_list(list, membership.topology().world_size());
  if (!has(list, membership.topology().rank())) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("new_group: rank {} is not in [{}], whose ranks alone meet in the store",
                    transport::describe_rank(membership.topology().rank(), membership.job_ranks()),
                    fmt::join(list, ", ")));
  }
  const Deadline deadline = Deadline::after(timeout.value_or(membership.timeout()));
  StoreExchange exchange(store, parent, list);
  const std::uint32_t number = exchange.agree_on_number(deadline);
  Job& job = *parent.job();
  const Expectation expectation(job.groups(), {number});
  ControlBlocks control_blocks(job, membership, std::span(&list, 1));
  exchange.join(control_blocks.offsets().front());
  control_blocks.keep();
  const std::vector<Entry> entries = exchange.wait(deadline);
  control_blocks.check();
  for (const Entry& entry : entries) {
    check_offset(entry.offset, entry.rank, membership);
  }
  return make_group(
      parent, list, number, timeout, [&entries](int rank) { return offset_of(entries, rank); });
}

}  // namespace unisono::comm
