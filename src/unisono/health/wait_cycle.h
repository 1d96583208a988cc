#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/health/rank_wait.h"

namespace unisono::health {

/// Asks a rank of the job in which wait of its own it is stuck, so that it can't do its part for
/// `waiter`; nothing where it may still do it, or does not answer.
using AskRank = std::function<std::optional<RankWait>(int rank, const RankWait& waiter)>;

/// Waits of which each needs another one to end first.
struct WaitCycle {
  std::vector<RankWait> waits;  ///< The one that was looked at is the first.
  std::string text;             ///< Says who waits in what for whom.
  std::string gone;  ///< Names ranks that some of them need no more; "" if there are none.
};

/// The circle that `start` is in: each wait's rank is waited for by the one before it, the first
/// one's by the last. With a receive from any rank, in which all are that lead from it back to
/// such waits. Ranks that wait for each other in one operation, which all of them have called, are
/// none. Asks each rank once for each wait that it is late for, 64 times in all at most.
[[nodiscard]] std::optional<WaitCycle> find_cycle(const RankWait& start, const AskRank& ask);

/// Whether two circles are of the same waits.
[[nodiscard]] bool are_same(std::span<const RankWait> some, std::span<const RankWait> others);

/// "rank 0 waits in all_reduce #1 of group 1 for rank 1, which waits in all_reduce #1 of group 2
/// for rank 0": from the lowest rank on, so that all its ranks say the same.
[[nodiscard]] std::string describe_cycle(std::span<const RankWait> cycle);

}  // namespace unisono::health
