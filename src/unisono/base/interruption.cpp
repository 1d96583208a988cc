#include "unisono/base/interruption.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "unisono/base/deadline.h"

namespace unisono {
namespace {

// People take it for at once.
constexpr std::chrono::milliseconds kBetweenChecks{100};

std::atomic<InterruptionCheck> the_check = nullptr;

}  // namespace

void set_interruption_check(InterruptionCheck check) noexcept {
  the_check.store(check, std::memory_order_release);
}

Deadline next_interruption_check() {
  return the_check.load(std::memory_order_relaxed) == nullptr ? Deadline::never()
                                                              : Deadline::after(kBetweenChecks);
}

void check_interruption() {
  if (const InterruptionCheck check = the_check.load(std::memory_order_acquire)) {
    check();
  }
}

void interruptible_sleep_until(Deadline deadline) {
  while (!deadline.has_passed()) {
    std::this_thread::sleep_until(earlier(deadline, next_interruption_check()).time());
    check_interruption();
  }
}

}  // namespace unisono
