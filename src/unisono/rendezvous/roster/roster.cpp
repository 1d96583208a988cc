#include "unisono/rendezvous/roster/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/text.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kMaxEntryBytes = 4096;
constexpr std::size_t kMaxObstacleBytes = 512;

using EntryCodec = FieldCodec<kMaxEntryBytes>;

// These fields are the same in every version, so that messages can name the rank.
auto common_fields(auto& entry) {
  return std::tie(entry.version,
                  entry.nonce,
                  entry.member.rank,
                  entry.member.world_size,
                  entry.member.pid,
                  entry.member.host,
                  entry.release);
}

auto other_fields(auto& entry) {
  return std::tie(entry.member.node,
                  entry.member.address,
                  entry.member.port,
                  entry.member.endpoint,
                  entry.member.backend.obstacle,
                  entry.member.backend.falls_back);
}

std::optional<Entry> decode_entry(std::string_view text) {
  ByteReader reader(std::as_bytes(std::span(text)));
  Entry entry;
  bool is_whole = EntryCodec::read(reader, common_fields(entry));
  if (is_whole && entry.version == net::kProtocolVersion) {
    is_whole = EntryCodec::read(reader, other_fields(entry)) && reader.rest().empty() &&
               entry.member.backend.obstacle.size() <= kMaxObstacleBytes;
  }
  return is_whole ? std::optional(entry) : std::nullopt;
}

}  // namespace

std::string describe(const RosterMember& member) {
  return fmt::format("rank {} (pid {} on {})", member.rank, member.pid, member.host);
}

std::string describe_version(const Entry& entry) {
  return fmt::format("{} (protocol {})", entry.release, entry.version);
}

std::string encode_entry(const Entry& entry) {
  Entry copy = entry;
  copy.member.backend.obstacle = utf8_prefix(entry.member.backend.obstacle, kMaxObstacleBytes);
  ByteWriter body;
  EntryCodec::write(body, common_fields(copy));
  EntryCodec::write(body, other_fields(copy));
  ByteWriter record;
  record.put_string({reinterpret_cast<const char*>(body.bytes().data()), body.bytes().size()});
  return {reinterpret_cast<const char*>(record.bytes().data()), record.bytes().size()};
}

std::optional<std::vector<Entry>> decode_entries(std::string_view text) {
  std::vector<Entry> entries;
  ByteReader reader(std::as_bytes(std::span(text)));
  while (!reader.rest().empty()) {
    const std::optional<std::string_view> record = reader.get_string_view(kMaxEntryBytes);
    std::optional<Entry> entry = record ? decode_entry(*record) : std::nullopt;
    if (!entry) {
      return std::nullopt;
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

namespace {

// Longer lists of ranks make a message useless.
constexpr std::size_t kMaxNamed = 8;

using Members = std::vector<const RosterMember*>;

std::string list(const Members& members) {
  std::string text;
  for (std::size_t i = 0; i < members.size() && i < kMaxNamed; ++i) {
    text += (i == 0 ? "" : ", ") + describe(*members[i]);
  }
  return members.size() <= kMaxNamed
             ? text
             : text + fmt::format(" and {} more", members.size() - kMaxNamed);
}

// Returns "4 on rank 0 (...), rank 1 (...), but 2 on rank 2 (...)".
template <class Value>
std::string list_by_value(const std::map<Value, Members>& groups) {
  std::string text;
  for (const auto& [value, members] : groups) {
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", but ", value, list(members));
  }
  return text;
}

// Terms in messages, in the form in which the user has given the values.
struct Words {
  const char* rank;  ///< Precedes the number.
  const char* world_size;
  const char* with_world_size;  ///< Precedes the number.
  const char* address;
};

Words words_of(const FromVariables& from) {
  return {.rank = from.rank ? "RANK=" : "rank ",
          .world_size = from.world_size ? "WORLD_SIZE" : "the world size",
          .with_world_size = from.world_size ? "WORLD_SIZE=" : "a world size of ",
          .address = from.address ? "MASTER_ADDR" : "the store's address"};
}

void add(std::string& problems, const std::string& problem) {
  problems += (problems.empty() ? "" : "; ") + problem;
}

// Returns the valid ranks among the entries.
std::set<int> present_in(int world_size, const std::vector<Entry>& entries) {
  std::set<int> ranks;
  for (const Entry& entry : entries) {
    if (entry.member.rank >= 0 && entry.member.rank < world_size) {
      ranks.insert(entry.member.rank);
    }
  }
  return ranks;
}

void check_ranks(const std::map<int, Members>& by_rank,
                 const std::string& place,
                 const Words& words,
                 std::string& problems) {
  for (const auto& [rank, members] : by_rank) {
    if (members.size() > 1) {
      // Rank 0 of the second job finds that rank 0 of the first job serves the store.
      const bool may_be_two_jobs = rank == 0 && !place.empty();
      add(problems,
          fmt::format("{}{} was given to {} processes: {}{}",
                      words.rank,
                      rank,
                      members.size(),
                      list(members),
                      may_be_two_jobs ? ", or two jobs use " + place : ""));
    }
  }
}

void check_world_sizes(const std::map<int, Members>& by_world_size,
                       const std::map<int, Members>& by_rank,
                       std::size_t n_entries,
                       const Words& words,
                       std::string& problems) {
  if (by_world_size.size() > 1) {
    add(problems, fmt::format("{} differs: {}", words.world_size, list_by_value(by_world_size)));
    return;
  }
  const int world_size = by_world_size.begin()->first;
  for (const auto& [rank, members] : by_rank) {
    if (rank < 0 || rank >= world_size) {
      add(problems,
          fmt::format(
              "{} is impossible with {}{}", list(members), words.with_world_size, world_size));
    }
  }
  if (!problems.empty() && n_entries >= static_cast<std::size_t>(world_size)) {
    for (int rank = 0; rank < world_size; ++rank) {
      if (!by_rank.contains(rank)) {
        add(problems, fmt::format("no process has {}{}", words.rank, rank));
        break;
      }
    }
  }
}

// A rank that listens on loopback cannot be reached by a rank that does not.
void check_addresses(const std::vector<Entry>& entries, const Words& words, std::string& problems) {
  std::map<bool, Members> by_loopback;
  for (const Entry& entry : entries) {
    const auto address = net::Address::parse(entry.member.address, entry.member.port);
    if (!address) {
      add(problems,
          fmt::format(
              "{} gives \"{}\" as its address", describe(entry.member), entry.member.address));
      return;
    }
    by_loopback[address->is_loopback()].push_back(&entry.member);
  }
  if (by_loopback.size() > 1) {
    add(problems,
        fmt::format("{} leads to loopback on {}, but not on {}: give all ranks an address that "
                    "other machines "
                    "can reach",
                    words.address,
                    list(by_loopback[true]),
                    list(by_loopback[false])));
  }
}

// Either all ranks accept the native backend, or every rank can use the requested one.
void check_backends(const std::vector<Entry>& entries, std::string& problems) {
  std::map<std::string, Members> by_obstacle;
  Members unwilling;
  for (const Entry& entry : entries) {
    if (!entry.member.backend.obstacle.empty()) {
      by_obstacle[entry.member.backend.obstacle].push_back(&entry.member);
    }
    if (!entry.member.backend.falls_back) {
      unwilling.push_back(&entry.member);
    }
  }
  if (!by_obstacle.empty() && !unwilling.empty()) {
    add(problems,
        fmt::format("some ranks need a fallback to backend unisono, which is not allowed: {}; set "
                    "UNISONO_BACKEND_FALLBACK=on on {} as well, or on none",
                    list_by_value(by_obstacle),
                    list(unwilling)));
  }
}

// Equivalent to the checks above but without messages: each rank checks thousands of entries, for
// which building the messages' tables takes long.
bool is_regular(const std::vector<Entry>& entries) {
  std::vector<bool> is_present(entries.size());
  std::optional<bool> is_loopback;
  for (const Entry& entry : entries) {
    const RosterMember& member = entry.member;
    const auto rank = static_cast<std::size_t>(member.rank);
    const auto address = net::Address::parse(member.address, member.port);
    if (entry.version != entries.front().version || entry.release != entries.front().release ||
        member.world_size != entries.front().member.world_size || rank >= is_present.size() ||
        is_present[rank] || !address || !entry.member.backend.obstacle.empty() ||
        is_loopback.value_or(address->is_loopback()) != address->is_loopback()) {
      return false;
    }
    is_present[rank] = true;
    is_loopback = address->is_loopback();
  }
  return !entries.empty() &&
         entries.size() == static_cast<std::size_t>(entries.front().member.world_size);
}

}  // namespace

std::optional<Error> find_problem(const std::vector<Entry>& entries,
                                  const std::string& place,
                                  const FromVariables& from_variables) {
  if (is_regular(entries)) {
    return std::nullopt;
  }
  std::map<int, Members> by_rank;
  std::map<int, Members> by_world_size;
  std::map<std::string, Members> by_version;
  for (const Entry& entry : entries) {
    by_rank[entry.member.rank].push_back(&entry.member);
    by_world_size[entry.member.world_size].push_back(&entry.member);
    by_version[describe_version(entry)].push_back(&entry.member);
  }
  if (by_version.size() > 1) {
    return Error(ErrorCode::kIncompatible,
                 "rendezvous: the ranks run different releases of unisono: " +
                     list_by_value(by_version) + "; give all the same one");
  }
  const Words words = words_of(from_variables);
  std::string problems;
  if (!entries.empty()) {
    check_ranks(by_rank, place, words, problems);
    check_world_sizes(by_world_size, by_rank, entries.size(), words, problems);
    check_addresses(entries, words, problems);
    check_backends(entries, problems);
  }
  if (problems.empty()) {
    return std::nullopt;
  }
  return Error(ErrorCode::kInvalidArgument, "rendezvous: " + problems);
}

std::size_t count_missing(const std::vector<Entry>& entries) {
  int world_size = 0;
  for (const Entry& entry : entries) {
    world_size = std::max(world_size, entry.member.world_size);
  }
  return static_cast<std::size_t>(world_size) - present_in(world_size, entries).size();
}

std::string describe_missing(const std::vector<Entry>& entries, int world_size) {
  const std::set<int> present = present_in(world_size, entries);
  const std::size_t n_missing = static_cast<std::size_t>(world_size) - present.size();
  std::string ranks;
  std::size_t n_named = 0;
  for (int rank = 0; n_named < std::min(n_missing, kMaxNamed); ++rank) {
    if (!present.contains(rank)) {
      ranks += fmt::format("{}{}", n_named == 0 ? "" : ", ", rank);
      ++n_named;
    }
  }
  if (n_missing > n_named) {
    ranks += fmt::format(" and {} more", n_missing - n_named);
  }
  return (n_missing == 1 ? "rank " : "ranks ") + ranks;
}

}  // namespace unisono::rendezvous
