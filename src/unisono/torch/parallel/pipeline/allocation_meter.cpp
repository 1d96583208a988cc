#include "unisono/torch/parallel/pipeline/allocation_meter.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "unisono/base/mutex.h"

namespace unisono::parallel {

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
