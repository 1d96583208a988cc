#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::parallel {

/// By the steady clock, which the ranks of a node share.
[[nodiscard]] double steady_now_ms();

/// A rank's step.
struct OwnSpans {
  std::span<const pipeline::Span> spans;  ///< Since its begin.
  double begin_ms;                        ///< By the steady clock.
};

/// The same step of all ranks, from the first start on. A collective operation. A barrier sets the
/// clocks of ranks on several nodes.
[[nodiscard]] pipeline::Timeline gather_timeline(ProcessGroup& group,
                                                 const pipeline::Schedule& schedule,
                                                 const OwnSpans& own,
                                                 std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono::parallel
