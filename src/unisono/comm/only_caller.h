#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

namespace unisono::comm {

/// The thread that makes all calls of something, if it is one. Thread-safe.
class OnlyCaller {
 public:
  /// `thread` makes a call; see this_thread_number().
  void note(std::uint64_t thread) {
    std::uint64_t known = thread_.load(std::memory_order_relaxed);
    if (known == kNone && thread_.compare_exchange_strong(known, thread)) {
      return;
    }
    if (known != thread && known != kSeveral) {
      thread_.store(kSeveral, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool has_none() const { return thread_.load(std::memory_order_relaxed) == kNone; }

  /// Nothing where no thread has called, or several have.
  [[nodiscard]] std::optional<std::uint64_t> thread() const {
    const std::uint64_t known = thread_.load(std::memory_order_relaxed);
    return known == kNone || known == kSeveral ? std::nullopt : std::optional(known);
  }

 private:
  static constexpr std::uint64_t kNone = 0;
  static constexpr std::uint64_t kSeveral = std::numeric_limits<std::uint64_t>::max();

  // Relaxed: it orders nothing else.
  std::atomic<std::uint64_t> thread_ = kNone;
};

}  // namespace unisono::comm
