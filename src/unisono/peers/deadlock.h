#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/transport/descriptor.h"

namespace unisono::peers {

/// Asks a rank of the job for the wait that prevents the rank's part for `waiter`. Returns
/// std::nullopt if the rank may still do that part, or does not answer.
using AskRank =
    std::function<std::optional<transport::Stall>(int rank, const transport::Stall& waiter)>;

/// A cycle of waits, each of which can end only after the next wait.
struct Deadlock {
  std::vector<transport::Stall> waits;  ///< The first is the wait that the search began with.
  std::string text;                     ///< The cycle as text, by describe_deadlock().
  std::string gone;  ///< Names of ranks that can no longer send to a receive of the cycle, or "".
};

/// Returns the cycle that `start` is part of: each wait needs the rank of the next wait, and the
/// last wait needs the rank of the first. A receive from any rank is part of a cycle if every rank
/// that may still send is blocked in the cycle. Ranks that wait for each other in a single
/// operation that all of them have called are not a cycle. Asks each rank once for each wait that
/// needs it, at most 64 times.
[[nodiscard]] std::optional<Deadlock> find_deadlock(const transport::Stall& start,
                                                    const AskRank& ask);

/// Returns true if two cycles consist of the same waits.
[[nodiscard]] bool are_same(std::span<const transport::Stall> some,
                            std::span<const transport::Stall> others);

/// Returns "rank 0 waits in all_reduce #1 of group 1 for rank 1, which waits in all_reduce #1 of
/// group 2 for rank 0". Begins with the lowest rank, so that all ranks report the same text.
[[nodiscard]] std::string describe_deadlock(std::span<const transport::Stall> cycle);

}  // namespace unisono::peers
