#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <c10/util/ThreadLocalDebugInfo.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::parallel {

/// Time in ms by the steady clock, which the ranks of a node share.
[[nodiscard]] double steady_now_ms();

/// The spans of a step on a rank.
struct OwnSpans {
  std::span<const pipeline::Span> spans;  ///< Times in ms since the start of the step.
  double begin_ms;                        ///< Start of the step in ms by the steady clock.
};

/// Returns the step of all ranks; the first start is at time 0. A collective operation. A barrier
/// aligns the clocks of different nodes.
[[nodiscard]] pipeline::Timeline gather_timeline(ProcessGroup& group,
                                                 const pipeline::Schedule& schedule,
                                                 const OwnSpans& own,
                                                 std::optional<std::chrono::milliseconds> timeout);

/// Counts the bytes of CPU memory that are allocated and freed for tensors during the lifetime of
/// the object, by this thread and by threads under its c10::ThreadLocalDebugInfo. Counts 0 while a
/// profiler of LibTorch runs, because the profiler receives the reports.
class AllocationMeter {
 public:
  AllocationMeter();

  /// Returns the peak of allocated and not yet freed bytes.
  [[nodiscard]] std::int64_t peak() const;

  /// Returns the number of allocated and not yet freed bytes now.
  [[nodiscard]] std::int64_t present() const;

 private:
  class Count;

  std::shared_ptr<Count> count_;  // Shared with the guard.
  std::optional<c10::DebugInfoGuard> guard_;
};

}  // namespace unisono::parallel
