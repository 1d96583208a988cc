#include "unisono/transport/shm/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

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

// With one thread there is no other processor whose next context switch the kernel has to await.
void join_asymmetric_fences_early() noexcept {
  if (__libc_single_threaded != 0) {
    join_asymmetric_fences();
  }
}

bool asymmetric_fence_heavy() noexcept {
  internal::full_fence();
  return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace unisono::shm
