#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// Availability of the requested backend on a rank.
struct BackendNeed {
  /// The reason why the rank cannot use the backend, at most 512 bytes; or "".
  std::string obstacle = {};
  /// True if the rank accepts the native backend when a rank cannot use the requested backend.
  bool falls_back = true;
};

/// A rank of a job, as published to the other ranks.
struct RosterMember {
  int rank = 0;
  /// The value given to this rank; the check of the roster compares all values.
  int world_size = 0;
  std::string host;  ///< Host name, for messages.
  std::int64_t pid = 0;
  std::string node;     ///< Ranks with equal nodes can pass each other file descriptors.
  std::string address;  ///< Numeric IP address of the rank's data listener.
  std::uint16_t port = 0;
  std::string endpoint;  ///< Name of its abstract Unix socket, for ranks of its node.
  BackendNeed backend = {};
};

/// Returns "rank 3 (pid 4123 on node-a)".
[[nodiscard]] std::string describe(const RosterMember& member);

/// The members of the job, by rank.
struct Roster {
  int rank = 0;     ///< This rank.
  std::string job;  ///< Random name of this generation of the job, equal on all ranks.
  std::vector<RosterMember> members;

  [[nodiscard]] int world_size() const { return static_cast<int>(members.size()); }

  [[nodiscard]] const RosterMember& self() const { return members[static_cast<std::size_t>(rank)]; }
};

/// A member with data that only the rendezvous needs.
struct Entry {
  std::uint16_t version = 0;  ///< net::kProtocolVersion of the rank.
  std::string release;        ///< Release of the library, "1.2.3".
  std::uint64_t nonce = 0;    ///< Random; distinguishes processes that claim the same rank.
  RosterMember member;        ///< For other versions only rank, world_size, pid and host are set.
};

/// Returns "0.1.0 (protocol 1)".
[[nodiscard]] std::string describe_version(const Entry& entry);

/// Encodes an entry with its length, so that entries can be concatenated.
[[nodiscard]] std::string encode_entry(const Entry& entry);

/// Decodes concatenated entries. Returns std::nullopt unless the text consists of complete entries.
[[nodiscard]] std::optional<std::vector<Entry>> decode_entries(std::string_view text);

/// Checks the entries of a meeting: duplicate and impossible ranks, unequal world sizes, different
/// versions, addresses that other ranks cannot reach, and backends that some ranks cannot use and
/// others require. `place` and `from_variables`: see ExchangeOptions. Returns std::nullopt if the
/// entries are valid so far. For equal arguments the text is the same on all ranks.
[[nodiscard]] std::optional<Error> find_problem(const std::vector<Entry>& entries,
                                                const std::string& place = "",
                                                const FromVariables& from_variables = {});

/// Returns the number of ranks that are missing from `entries`, based on the largest world size
/// among the entries.
[[nodiscard]] std::size_t count_missing(const std::vector<Entry>& entries);

/// Returns "rank 2" or "ranks 1, 4, 5, ..." for the ranks that are missing from `entries`.
[[nodiscard]] std::string describe_missing(const std::vector<Entry>& entries, int world_size);

}  // namespace unisono::rendezvous
