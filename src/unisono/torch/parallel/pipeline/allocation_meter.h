#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace unisono::parallel {

/// While it lives, counts the bytes of CPU memory that this thread allocates and frees for tensors,
/// and what other threads do under its c10::ThreadLocalDebugInfo. Where a profiler of LibTorch's
/// runs, it leaves the count to that, and has none.
class AllocationMeter {
 public:
  AllocationMeter();

  /// Allocated since its begin and not freed, at most.
  [[nodiscard]] std::int64_t peak() const;

  /// Allocated since its begin and not freed, now.
  [[nodiscard]] std::int64_t present() const;

 private:
  class Count;

  std::shared_ptr<Count> count_;  // Shared with the guard.
  std::optional<c10::DebugInfoGuard> guard_;
};

}  // namespace unisono::parallel
