#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {

/// What a measured step does not say of itself.
struct Circumstances {
  /// Cores or GPUs that all ranks together compute on.
  int n_devices = 1;
  /// What a step of the whole batch, in one piece and without a pipeline, takes on one of them.
  std::optional<double> whole_batch = {};
};

/// What the chunks take in a stage, on average, and the stage's share of all computation.
struct StageCost {
  int stage;
  int rank;
  double forward;
  double backward;
  double share;
};

/// Whether a pipeline is worth it, and where its time goes. In the unit of the timeline.
struct Gain {
  std::vector<StageCost> stages;
  double step = 0;    ///< As measured.
  double serial = 0;  ///< The same actions one after the other.
  double alone = 0;   ///< What the step competes with: the whole batch's time, if known; `serial`.
  double ideal = 0;   ///< The same actions, if they waited for nothing but each other.
  /// What `unisono plan pipeline` says of the step by what the chunks take on average.
  double planned = 0;
  double bubble = 0;  ///< As measured, 0 to 1; `ideal_bubble` is that of the ideal step.
  double ideal_bubble = 0;
  std::vector<std::string> reasons;  ///< A sentence each: what keeps it from being faster.

  /// How many times as fast as without a pipeline, as measured and at best.
  [[nodiscard]] double factor() const { return alone / step; }

  [[nodiscard]] double best_factor() const { return alone / ideal; }

  /// How much longer the step took than planned: 0.1 is a tenth.
  [[nodiscard]] double off_plan() const { return step / planned - 1; }
};

/// Looks into a step that was measured. It is one of `schedule`: all its actions, on its ranks.
///
/// Throws Error(kInvalidArgument) where it is not, and for less than one device.
[[nodiscard]] Gain gain_of(const Schedule& schedule,
                           const Timeline& measured,
                           const Circumstances& circumstances);

/// The same as text: a table of the stages, the bubbles, and whether pipelining wins on this
/// machine, can win, or why it can't. `unit` is that of the times: "ms".
[[nodiscard]] std::string describe(const Gain& gain, const std::string& unit);

}  // namespace unisono::pipeline
