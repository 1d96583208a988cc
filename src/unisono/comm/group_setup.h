#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/transport/rank_table.h"

namespace unisono::comm {

/// Assigns numbers to groups. The group of all ranks from the start has number 0; the number of any
/// other group consists of its first rank and a serial number of that rank. So no two groups of a
/// job have the same number, and no rank needs to ask another rank. Owned by Job. Thread-safe.
class GroupNumbers {
 public:
  /// `rank` and `world_size` are those of the job.
  GroupNumbers(int rank, int world_size);

  /// Returns the first of `n` unused numbers; next() returns the others. Throws Error(kInternal) if
  /// fewer than `n` numbers are left.
  [[nodiscard]] std::uint32_t take(std::size_t n);

  /// Returns the number that follows `number` on the same rank.
  [[nodiscard]] std::uint32_t next(std::uint32_t number) const { return number + world_size_; }

  /// Returns the name of the group in messages: "2.1" is the first group with rank 2 as its first
  /// rank.
  [[nodiscard]] std::string name(std::uint32_t number) const;

 private:
  std::uint32_t rank_;
  std::uint32_t world_size_;
  // Relaxed accesses suffice: no other data depends on it.
  std::atomic<std::uint64_t> n_taken_ = 0;
};

/// A group of a job's ranks, before it is made.
struct GroupSetup {
  std::uint32_t number = 0;     ///< Equal on all ranks of the group; 0 is the group of all ranks.
  transport::RankTable roster;  ///< The members, by rank in the group.
  std::chrono::milliseconds timeout;
  /// The place of the group's memory in the arena of each rank of this node, by rank in the group.
  std::vector<std::int64_t> offsets;

  /// Returns the rank in the group of a rank of the job; -1 if the rank is not a member.
  [[nodiscard]] int rank_of(int job_rank) const;
};

/// Returns "group 1.2 (ranks 1, 3)" or "the group of all ranks".
[[nodiscard]] std::string describe_group(const GroupSetup& setup, const GroupNumbers& numbers);

}  // namespace unisono::comm
