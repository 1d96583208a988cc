#pragma once

#include <atomic>
#include <cstdint>

#include "unisono/base/deadline.h"

namespace unisono::shm {

// Asymmetric fences between processes. Two threads, perhaps of two processes, each store a value,
// fence, and load the other's value, the first with the light fence and the second with the heavy
// fence. At least one thread then sees the other's store. The light fence is almost free and is for
// the frequent side; the heavy fence is a system call. As in P1202R5, but across processes:
// membarrier(2), global expedited.

namespace internal {

// True until join_asymmetric_fences() succeeds, hence always if the kernel refuses.
extern std::atomic<bool> are_light_fences_full;

// std::atomic_thread_fence is an error under GCC's thread sanitizer.
inline void full_fence() noexcept {
  __sync_synchronize();
}

}  // namespace internal

/// Makes this process's light fences cheap if the kernel supports membarrier(2). The first call
/// takes some milliseconds in a process with several threads.
void join_asymmetric_fences() noexcept;

/// Calls join_asymmetric_fences() if the process has a single thread, so that the call is fast.
/// Otherwise has no effect.
void join_asymmetric_fences_early() noexcept;

/// The fence of the frequent side: a compiler barrier after join_asymmetric_fences(), otherwise a
/// full fence.
inline void asymmetric_fence_light() noexcept {
  if (internal::are_light_fences_full.load(std::memory_order_relaxed)) [[unlikely]] {
    internal::full_fence();
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

/// The fence of the rare side. Returns false if the kernel refuses (an old kernel, or a sandbox):
/// the light fence of another process may then have missed this fence, and the caller must poll
/// again a little later.
[[nodiscard]] bool asymmetric_fence_heavy() noexcept;

/// The futex on which a rank sleeps until a peer, perhaps in another process, has work. Lies in
/// shared memory, zero-initialized.
///
/// No wake-up is lost: the owner sets `is_sleeping_` before the last poll of the condition, and a
/// ringer writes the condition before it reads `is_sleeping_`. The accesses to the condition are
/// sequentially consistent, like the accesses to the doorbell's words, or are ordered by asymmetric
/// fences. ring() may be called by any thread of any process. No call fails.
class Doorbell {
 public:
  /// Wakes the owner if it sleeps or is about to sleep. Costs a single load otherwise.
  void ring() noexcept {
    if (is_sleeping_.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
      ring_sleeper();
    }
  }

  /// Owner only: announces a sleep. The owner must then poll the condition once more and call
  /// sleep() or stay().
  [[nodiscard]] std::uint32_t prepare() noexcept {
    is_sleeping_.store(1, std::memory_order_seq_cst);
    return rings_.load(std::memory_order_seq_cst);
  }

  /// Owner only: sleeps until a ring after prepare() returned `rings`, or until `deadline`.
  void sleep(std::uint32_t rings, Deadline deadline) noexcept;

  /// Owner only: withdraws the announcement.
  void stay() noexcept { is_sleeping_.store(0, std::memory_order_relaxed); }

 private:
  void ring_sleeper() noexcept;

  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> is_sleeping_;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace unisono::shm
