#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/late_rank.h"
#include "unisono/launch/wait_file.h"

namespace unisono::launch {

/// What of a rank's waits counts at `now`: not those after which the rank has not looked for ten
/// seconds, as where it is stopped. None has begun before `counts_from`.
[[nodiscard]] std::vector<RankWait> present_waits(int rank,
                                                  std::span<const LongWait> waits,
                                                  Deadline::Clock::time_point counts_from,
                                                  Deadline::Clock::time_point now);

/// Looks once a second for whom the ranks of this node wait.
class StallWatch {
 public:
  /// Throws Error(kSystem).
  StallWatch(int first_rank, std::size_t n_ranks);

  /// For the rank's kWaitFileVariable.
  [[nodiscard]] std::string path(std::size_t worker) const { return ranks_[worker].file.path(); }

  [[nodiscard]] Deadline next_look() const { return next_look_; }

  /// Where the last look is long ago this process was stopped, and maybe the ranks with it: then
  /// all waits begin now.
  void look(Deadline::Clock::time_point now);

  /// As the last look found them: those of all ranks.
  [[nodiscard]] std::span<const RankWait> waits() const { return waits_; }

  [[nodiscard]] std::span<const RankWait> waits_of(std::size_t worker) const {
    return ranks_[worker].waits;
  }

  /// The ranks whose waits have changed since the last call.
  [[nodiscard]] std::vector<std::size_t> take_changed();

  /// The process that waits as the rank, which its first one may have started; nothing where none
  /// has said that it does.
  [[nodiscard]] std::optional<pid_t> pid(std::size_t worker) const { return ranks_[worker].pid; }

 private:
  struct Rank {
    WaitFile file = {};
    std::vector<LongWait> said = {};   // Last, whole.
    std::vector<RankWait> waits = {};  // What of it counts.
    std::optional<pid_t> pid = {};
    bool has_changed = false;
  };

  int first_rank_;
  std::vector<Rank> ranks_;
  std::vector<RankWait> waits_;
  std::optional<Deadline::Clock::time_point> last_look_;
  Deadline::Clock::time_point counts_from_ = Deadline::Clock::time_point::min();
  Deadline next_look_ = Deadline::after(std::chrono::seconds(0));
};

}  // namespace unisono::launch
