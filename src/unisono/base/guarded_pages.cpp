#include "unisono/base/guarded_pages.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace unisono {
namespace {

using Touch = GuardedPages::Touch;

constexpr std::size_t kMostRanges = 4096;
constexpr std::size_t kMostNameBytes = 500;

constexpr std::uintptr_t kNowhere = std::numeric_limits<std::uintptr_t>::max();

// A guarded range. The signal handler reads the fields without a lock and without allocation.
struct Range {
  std::atomic<bool> is_taken = false;
  // First guarded address; kNowhere outside of a use, so that the range contains no address.
  std::atomic<std::uintptr_t> begin = kNowhere;
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<Touch> touch = Touch::kNone;
  std::array<char, kMostNameBytes> name{};
  std::size_t n_name_bytes = 0;
};

std::array<Range, kMostRanges> ranges;
struct sigaction former_action;

Touch touch_of([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kIsWrite = 2;  // Bit of a page fault's error code.
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kIsWrite) != 0 ? Touch::kWrite : Touch::kRead;
#else
  return Touch::kSome;
#endif
}

void unprotect(std::uintptr_t begin, std::uintptr_t end) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
  ::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE);
}

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

// Records the access and unprotects the range. Returns false if the range does not contain the
// address.
bool let_through(Range& range, std::uintptr_t address, Touch touch) {
  const std::uintptr_t begin = range.begin.load(std::memory_order_acquire);
  const std::uintptr_t end = range.end.load(std::memory_order_relaxed);
  if (address < begin || address >= end) {
    return false;
  }
  Touch none = Touch::kNone;
  if (range.touch.compare_exchange_strong(none, touch)) {
    say({range.name.data(), range.n_name_bytes});
    say(" is ");
    say(to_string(touch));
    say("\n");
  }
  unprotect(begin, end);
  return true;
}

void hand_on(int number, siginfo_t* info, void* context) {
  if ((former_action.sa_flags & SA_SIGINFO) != 0) {
    former_action.sa_sigaction(number, info, context);
  } else if (former_action.sa_handler != SIG_DFL && former_action.sa_handler != SIG_IGN) {
    former_action.sa_handler(number);
  } else {
    // The instruction is executed again and ends the process.
    ::signal(number, SIG_DFL);
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int old_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool is_guarded = std::any_of(ranges.begin(), ranges.end(), [&](Range& range) {
    return let_through(range, address, touch_of(context));
  });
  if (!is_guarded) {
    hand_on(number, info, context);
  }
  errno = old_errno;
}

bool install_handler() {
  struct sigaction mine{};
  mine.sa_sigaction = on_fault;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&mine.sa_mask);
  return ::sigaction(SIGSEGV, &mine, &former_action) == 0;
}

// Returns the index of a free range in the table, or -1.
int take_range() {
  const auto free = std::find_if(ranges.begin(), ranges.end(), [](Range& range) {
    return !range.is_taken.exchange(true, std::memory_order_acquire);
  });
  return free == ranges.end() ? -1 : static_cast<int>(free - ranges.begin());
}

Range& range_at(int place) {
  return ranges[static_cast<std::size_t>(place)];
}

}  // namespace

GuardedPages::GuardedPages(std::span<std::byte> memory, const std::string& name) : range_(-1) {
  static const bool is_installed = install_handler();
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t begin = (first + page - 1) / page * page;
  const std::uintptr_t end = (first + memory.size()) / page * page;
  if (!is_installed || begin >= end) {
    return;
  }
  range_ = take_range();
  if (range_ < 0) {
    return;
  }
  Range& range = range_at(range_);
  range.n_name_bytes = name.copy(range.name.data(), range.name.size());
  range.touch.store(Touch::kNone, std::memory_order_relaxed);
  range.end.store(end, std::memory_order_relaxed);
  // Release: a handler that reads the new `begin` reads the other fields of the same range.
  range.begin.store(begin, std::memory_order_release);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is an address.
  ::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE);
}

GuardedPages::~GuardedPages() {
  if (range_ >= 0) {
    Range& range = range_at(range_);
    unprotect(range.begin, range.end);
    // A handler that still reads the old `end` must not combine it with a later `begin`.
    range.begin.store(kNowhere, std::memory_order_release);
    range.end.store(0, std::memory_order_release);
    range.is_taken.store(false, std::memory_order_release);
  }
}

GuardedPages::Touch GuardedPages::first_touch() const {
  return range_ < 0 ? Touch::kNone : range_at(range_).touch.load();
}

const char* to_string(GuardedPages::Touch touch) {
  switch (touch) {
    case Touch::kNone:
      return "untouched";
    case Touch::kRead:
      return "read";
    case Touch::kWrite:
      return "written to";
    case Touch::kSome:
      return "read or written to";
  }
  return "touched";
}

}  // namespace unisono
