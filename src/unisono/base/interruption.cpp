#include "unisono/base/interruption.h"

#include <atomic>
#include <chrono>

#include "unisono/base/deadline.h"

namespace unisono {
namespace {

// People take it for at once.
constexpr std::chrono::milliseconds kPause{100};

std::atomic<InterruptionCheck> the_check = nullptr;

}  // namespace

void set_interruption_check(InterruptionCheck check) noexcept {
  the_check.store(check, std::memory_order_release);
}

Deadline next_interruption_check() {
  return the_check.load(std::memory_order_relaxed) == nullptr ? Deadline::never()
                                                              : Deadline::after(kPause);
}

void check_interruption() {
  if (const InterruptionCheck check = the_check.load(std::memory_order_acquire)) {
    check();
  }
}

}  // namespace unisono
