#pragma once

#include <vector>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// When an action ran, in any unit of time.
struct Span {
  Action action;
  double start;
  double end;
};

/// One step of a pipeline, as it was measured or thought out. The clocks of all ranks show the
/// same.
struct Timeline {
  std::vector<std::vector<Span>> ranks;  ///< One for each rank, in the order of their starts.
};

/// From the first start on any rank until the last end; the first is `start_time()`.
[[nodiscard]] double start_time(const Timeline& timeline);
[[nodiscard]] double step_time(const Timeline& timeline);

/// How long `rank` computed.
[[nodiscard]] double busy_time(const Timeline& timeline, int rank);

/// The share of the step in which ranks did not compute, 0 to 1: of one, or of all together.
[[nodiscard]] double bubble(const Timeline& timeline, int rank);
[[nodiscard]] double bubble(const Timeline& timeline);

/// The lowest stage in which `rank` did something; 0 where it did nothing.
[[nodiscard]] int first_stage(const Timeline& timeline, int rank);

/// What `rank` held at most of activations, where one of a chunk takes as much in each stage as
/// `sizes` has: from a forward's start until the end of its backward, or of its weight gradients.
/// Without sizes, their number.
[[nodiscard]] double peak_activations(const Timeline& timeline,
                                      int rank,
                                      const std::vector<double>& sizes = {});

}  // namespace unisono::pipeline
