#pragma once

#include <atomic>

namespace unisono::shm {

// Two threads, perhaps of two processes, each store something, fence, and load what the other
// stores: then at least one of them sees the other's store. The light fence is for the side that
// does so often, and costs next to nothing; the heavy one is a system call. As in P1202R5, but
// between processes: membarrier(2), global expedited.

namespace internal {

// Until join_asymmetric_fences(), and where the kernel refuses.
extern std::atomic<bool> are_light_fences_full;

// The standard's own is an error where GCC's thread sanitizer is on.
inline void full_fence() noexcept {
  __sync_synchronize();
}

}  // namespace internal

/// Makes this process's light fences light, if the kernel does its part. The first call takes some
/// milliseconds where the process has several threads.
void join_asymmetric_fences() noexcept;

/// The same, if it takes no time; else nothing.
void join_asymmetric_fences_early() noexcept;

inline void asymmetric_fence_light() noexcept {
  if (internal::are_light_fences_full.load(std::memory_order_relaxed)) [[unlikely]] {
    internal::full_fence();
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

/// False where the kernel refuses (it is old, or this is a sandbox): then another process's light
/// fence may have missed this one, and the caller has to look again a little later.
[[nodiscard]] bool asymmetric_fence_heavy() noexcept;

}  // namespace unisono::shm
