#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono::launch {

/// A wait of one of the job's ranks.
struct RankWait {
  int rank = 0;
  Deadline::Clock::time_point since;
  std::string operation = {};  ///< "all_reduce #3 (f32[8], sum)".
  std::vector<int> late = {};  ///< For whom; none: any other rank may end it.

  friend bool operator==(const RankWait&, const RankWait&) = default;
};

/// A rank that others have waited for too long.
struct LateRank {
  int rank = 0;
  Deadline::Clock::time_point since;
  std::vector<RankWait> waits = {};  ///< Those that are for it, the longest first.
};

/// The rank that keeps the others: a wait has been for it for `limit`, and it waits for no rank
/// itself, or only for any. Of several the one that is waited for longest.
///
/// Nothing where there is none: of ranks that wait one for the other, the last one counts when it
/// has been waited for as long; ranks that wait in a circle find that themselves.
[[nodiscard]] std::optional<LateRank> find_late_rank(std::span<const RankWait> waits,
                                                     std::chrono::milliseconds limit,
                                                     Deadline::Clock::time_point now);

/// When find_late_rank() may find another one of the same waits; never: not before they change.
[[nodiscard]] Deadline next_late_rank(std::span<const RankWait> waits,
                                      std::chrono::milliseconds limit,
                                      Deadline::Clock::time_point now);

/// "ranks 0, 2-7 in all_reduce #3 (f32[8], sum) for 30.2 s": a line for each of the first
/// operations.
[[nodiscard]] std::string describe_waits(const LateRank& late, Deadline::Clock::time_point now);

/// "30.2 s".
[[nodiscard]] std::string describe_seconds(std::chrono::nanoseconds time);

}  // namespace unisono::launch
