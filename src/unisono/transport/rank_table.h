#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/net/address.h"

namespace unisono {

/// Payload bytes, without headers, that a rank's collectives exchanged with a rank of another node.
struct RankTraffic {
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;

  friend bool operator==(const RankTraffic&, const RankTraffic&) = default;
};

}  // namespace unisono

namespace unisono::transport {

/// Identity and address of a rank of a group, for the other ranks.
struct Member {
  int job_rank = 0;      ///< Rank in the job.
  int local_rank = 0;    ///< Index among the job's ranks of its node, in order of rank.
  std::string host;      ///< Host name, for messages.
  std::int64_t pid = 0;  ///< Process id on its node, for messages and for the ranks of its node.
  std::string node;      ///< Ranks with equal nodes share memory.
  net::Address address = net::Address::loopback(0);  ///< Address of the rank's data listener.
  std::string endpoint;  ///< Name of its abstract Unix socket, for ranks of its node.
};

/// Returns "rank 3 (pid 4123 on node-a)".
[[nodiscard]] std::string describe(const Member& member);

/// All ranks of a group, as seen by this rank.
struct RankTable {
  int rank = 0;                 ///< This rank's number in the group.
  std::string job;              ///< Random name of the job's generation, equal on all ranks.
  std::vector<Member> members;  ///< Indexed by rank in the group.

  [[nodiscard]] int world_size() const { return static_cast<int>(members.size()); }

  [[nodiscard]] const Member& self() const { return members[static_cast<std::size_t>(rank)]; }

  /// Returns an entry of the table. The rank must be valid.
  [[nodiscard]] const Member& member(int rank_in_group) const {
    return members[static_cast<std::size_t>(rank_in_group)];
  }

  /// Returns the node name of each rank.
  [[nodiscard]] std::vector<std::string> nodes() const;
};

}  // namespace unisono::transport
