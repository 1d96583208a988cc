#include "unisono/transport/shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

#include <climits>

#include "unisono/base/deadline.h"

namespace unisono::shm {
namespace {

// The word is a plain 32-bit integer to the kernel.
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
