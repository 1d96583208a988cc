#include "unisono/health/stack_dump.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread_stacks.h"

namespace unisono::health {
namespace {

constexpr std::chrono::seconds kPause{2};

// A pool of workers looks alike from the second on.
constexpr std::size_t kMaxThreads = 32;

}  // namespace

StackDump::StackDump(Logger logger)
    : logger_(std::move(logger)), next_(Deadline::after(std::chrono::seconds::zero())) {}

void StackDump::show(int asking_rank) noexcept {
  const MutexLock lock(mutex_);
  if (!logger_.is_enabled(LogLevel::kDebug) || !next_.has_passed()) {
    return;
  }
  next_ = Deadline::after(kPause);
  try {
    for (const ThreadStack& stack : take_stacks(kMaxThreads)) {
      std::string text = fmt::format(
          "stack of thread {} ({}), asked for by rank {}:", stack.thread, stack.name, asking_rank);
      if (!stack.problem.empty()) {
        text += " none, as " + stack.problem;
      }
      for (std::size_t i = 0; i < stack.frames.size(); ++i) {
        text += fmt::format("\n  #{} {}", i, stack.frames[i]);
      }
      logger_.debug(text);
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say.
  }
}

}  // namespace unisono::health
