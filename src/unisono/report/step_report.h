#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/report/step_timer.h"

namespace unisono {

class ProcessGroup;

/// Where the time of a rank's steps went: medians, in seconds, so that they need not add up.
struct RankStepReport {
  double step = 0;
  double forward = 0;
  double backward = 0;       ///< With the communication that goes on behind it.
  double communication = 0;  ///< Exposed: the least that any rank waited in that step.
  double waiting = 0;        ///< For the slowest rank: what this one waited beyond that.
  double other = 0;          ///< Data, loss, optimizer.
  std::int64_t n_bytes = 0;  ///< Of gradients that were averaged in the last step.
};

/// Where the time of the last steps went, on every rank. Without steps there are no ranks.
struct StepReport {
  std::size_t n_steps = 0;  ///< That the medians are of.
  std::vector<RankStepReport> ranks;
  /// The rank that the others wait for, where they do.
  std::optional<int> slowest;

  /// A table, and a line that names the slowest rank and what it takes longer for.
  [[nodiscard]] std::string table() const;

  /// In one line: "step 12.3 ms: forward 33%, ...", as the slowest rank has it, or rank 0.
  [[nodiscard]] std::string line() const;
};

/// Of each rank's last steps, which are the same steps on all. Their clocks are not compared: a
/// rank's time alone, and how long it waited, say who came last.
[[nodiscard]] StepReport make_step_report(const std::vector<std::vector<StepTimes>>& ranks,
                                          const std::vector<std::int64_t>& n_bytes);

/// make_step_report() of all ranks' timers. A collective operation, of 6 KiB for each rank.
[[nodiscard]] StepReport gather_step_report(ProcessGroup& group,
                                            const StepTimer& timer,
                                            std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace unisono
