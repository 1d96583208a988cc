#include "unisono/torch/parallel/pipeline/gather_timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <c10/core/Allocator.h>

#include "unisono/base/buffer.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/options.h"

namespace unisono::parallel {

using pipeline::as_index;

namespace {

// The number of doubles that encode a span.
constexpr std::size_t kNumbers = 5;

std::array<double, kNumbers> numbers_of(const pipeline::Span& span, double shift) {
  return {static_cast<double>(span.action.kind),
          static_cast<double>(span.action.stage),
          static_cast<double>(span.action.chunk),
          span.start + shift,
          span.end + shift};
}

pipeline::Span span_of(std::span<const double> numbers) {
  return {.action = {.kind = static_cast<pipeline::ActionKind>(numbers[0]),
                     .stage = static_cast<int>(numbers[1]),
                     .chunk = static_cast<int>(numbers[2])},
          .start = numbers[3],
          .end = numbers[4]};
}

void begin_at_zero(pipeline::Timeline& timeline) {
  const double start = pipeline::start_time(timeline);
  for (std::vector<pipeline::Span>& spans : timeline.ranks) {
    for (pipeline::Span& span : spans) {
      span.start -= start;
      span.end -= start;
    }
  }
}

}  // namespace

double steady_now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

pipeline::Timeline gather_timeline(ProcessGroup& group,
                                   const pipeline::Schedule& schedule,
                                   const OwnSpans& own,
                                   std::optional<std::chrono::milliseconds> timeout) {
  double origin = 0;
  if (group.local_world_size() != group.world_size()) {
    group.barrier({.timeout = timeout, .label = "timeline"});
    origin = steady_now_ms();
  }
  std::size_t most = 0;
  for (const std::vector<pipeline::Action>& order : schedule.orders) {
    most = std::max(most, order.size());
  }
  std::vector<double> mine(most * kNumbers, -1.0);  // A negative kind marks an unused entry.
  for (std::size_t i = 0; i < own.spans.size(); ++i) {
    std::ranges::copy(numbers_of(own.spans[i], own.begin_ms - origin),
                      mine.begin() + static_cast<std::ptrdiff_t>(i * kNumbers));
  }
  std::vector<double> all(mine.size() * as_index(group.world_size()));
  group.all_gather(as_buffer(std::span(mine)),
                   as_buffer(std::span(all)),
                   {.timeout = timeout, .label = "timeline"});
  pipeline::Timeline timeline;
  timeline.ranks.resize(as_index(group.world_size()));
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    if (all[i] >= 0) {
      timeline.ranks[i / mine.size()].push_back(span_of(std::span(all).subspan(i, kNumbers)));
    }
  }
  begin_at_zero(timeline);
  return timeline;
}

class AllocationMeter::Count : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/,
                         std::int64_t change,
                         std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/,
                         c10::Device /*device*/) override {
    const MutexLock lock(mutex_);
    present_ += change;
    peak_ = std::max(peak_, present_);
  }

  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  [[nodiscard]] std::int64_t peak() const {
    const MutexLock lock(mutex_);
    return peak_;
  }

  [[nodiscard]] std::int64_t present() const {
    const MutexLock lock(mutex_);
    return present_;
  }

 private:
  mutable Mutex mutex_;
  std::int64_t present_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::int64_t peak_ UNISONO_GUARDED_BY(mutex_) = 0;
};

AllocationMeter::AllocationMeter() {
  const auto kind = c10::DebugInfoKind::PROFILER_STATE;
  if (c10::ThreadLocalDebugInfo::get(kind) == nullptr) {
    count_ = std::make_shared<Count>();
    guard_.emplace(kind, count_);
  }
}

std::int64_t AllocationMeter::peak() const {
  return count_ == nullptr ? 0 : count_->peak();
}

std::int64_t AllocationMeter::present() const {
  return count_ == nullptr ? 0 : count_->present();
}

}  // namespace unisono::parallel
