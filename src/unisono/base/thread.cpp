#include "unisono/base/thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono {
namespace {

thread_local bool is_started = false;

std::uint64_t next_thread_number() {
  static std::atomic<std::uint64_t> n_threads = 0;
  return n_threads.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

bool is_started_thread() {
  return is_started;
}

std::uint64_t this_thread_number() {
  thread_local const std::uint64_t number = next_thread_number();
  return number;
}

std::thread start_thread(const char* name, const std::string& failure, std::function<void()> body) {
  try {
    return std::thread([name, body = std::move(body)] {
      ::pthread_setname_np(::pthread_self(), name);
      is_started = true;
      body();
    });
  } catch (const std::system_error& error) {
    throw Error(
        ErrorCode::kSystem,
        fmt::format("{}: {}; raise the limit of processes (ulimit -u)", failure, error.what()));
  }
}

namespace {

// Users perceive a delay of 100 ms as immediate.
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
