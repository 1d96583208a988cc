#pragma once

#include <atomic>
#include <cstdint>

#include "unisono/base/deadline.h"

namespace unisono::shm {

/// Where a rank sleeps until a peer, perhaps in another process, has something for it. Lies in
/// shared memory, zeroed at first.
///
/// No wake-up is lost: the sleeper sets `is_sleeping_` before it looks once more at what it waits
/// for; the ringer writes that before it looks at `is_sleeping_`. What is waited for is read and
/// written sequentially consistent, as the doorbell's own words are, or there are asymmetric
/// fences.
class Doorbell {
 public:
  /// Wakes the owner if it sleeps or is about to. Costs one load if it does not.
  void ring() noexcept {
    if (is_sleeping_.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
      ring_sleeper();
    }
  }

  /// Owner only: announces a sleep. After it, look at what is waited for; then sleep() or stay().
  [[nodiscard]] std::uint32_t prepare() noexcept {
    is_sleeping_.store(1, std::memory_order_seq_cst);
    return rings_.load(std::memory_order_seq_cst);
  }

  /// Owner only: sleeps until a ring since prepare() returned `rings`, or until `deadline`.
  void sleep(std::uint32_t rings, Deadline deadline) noexcept;

  /// Owner only: takes the announcement back.
  void stay() noexcept { is_sleeping_.store(0, std::memory_order_relaxed); }

 private:
  void ring_sleeper() noexcept;

  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> is_sleeping_;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace unisono::shm
