#include "unisono/transport/shm/doorbell.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include <climits>

namespace unisono::shm {
namespace {

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

namespace internal {

std::atomic<bool> are_light_fences_full = true;

}  // namespace internal

void join_asymmetric_fences() noexcept {
  static const bool has_joined = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  if (has_joined) {
    internal::are_light_fences_full.store(false, std::memory_order_relaxed);
  }
}

// In a process with a single thread the kernel need not await a context switch on another
// processor, so the registration is fast.
void join_asymmetric_fences_early() noexcept {
  if (__libc_single_threaded != 0) {
    join_asymmetric_fences();
  }
}

bool asymmetric_fence_heavy() noexcept {
  internal::full_fence();
  return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

namespace {

// For the kernel the futex word is a plain 32-bit integer.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) {
  return reinterpret_cast<std::uint32_t*>(&word);
}

}  // namespace

void Doorbell::ring_sleeper() noexcept {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, futex_word(rings_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(std::uint32_t rings, Deadline deadline) noexcept {
  timespec timeout{};
  timespec* limit = nullptr;
  if (!deadline.is_never()) {
    const std::chrono::nanoseconds left = deadline.remaining();
    timeout.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
    limit = &timeout;
  }
  // Not FUTEX_PRIVATE: the word is shared between processes.
  ::syscall(SYS_futex, futex_word(rings_), FUTEX_WAIT, rings, limit, nullptr, 0);
  stay();
}

}  // namespace unisono::shm
