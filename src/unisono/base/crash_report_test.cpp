#include "unisono/base/crash_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// tests/processes covers the crashes of ranks.

namespace unisono {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

struct sigaction action_of(int signal_number) {
  struct sigaction action{};
  ::sigaction(signal_number, nullptr, &action);
  return action;
}

bool has_alternate_stack() {
  stack_t stack{};
  ::sigaltstack(nullptr, &stack);
  return (stack.ss_flags & SS_DISABLE) == 0;
}

// One test covers both cases, because crash reports are installed only once in a process.
TEST(CrashReports, TakeTheFiveSignalsThatNobodyHas) {
  std::map<int, struct sigaction> before;
  ::signal(SIGFPE, SIG_IGN);
  for (int number = 1; number < SIGRTMIN; ++number) {
    before[number] = action_of(number);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] { install_crash_reports("rank 0"); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int number = 1; number < SIGRTMIN; ++number) {
    const bool is_taken = action_of(number).sa_handler != before[number].sa_handler;
    const bool is_fatal =
        number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGILL;
    EXPECT_EQ(is_taken, is_fatal && !kIsSanitized) << number;
  }
  ::signal(SIGFPE, SIG_DFL);
  install_crash_reports("rank 1");
  EXPECT_EQ(action_of(SIGFPE).sa_handler, SIG_DFL) << "only the first call takes signals";
}

TEST(CrashReports, GiveTheCallersThreadAStack) {
  std::thread([] {
    const bool had_one = has_alternate_stack();
    install_crash_reports("rank 0");
    EXPECT_EQ(has_alternate_stack(), had_one || !kIsSanitized);
  }).join();
}

}  // namespace
}  // namespace unisono

// tests/processes covers names and lines.

namespace unisono {
namespace {

// Returns the headline without process and thread.
std::string cause_of(const siginfo_t& info, std::uintptr_t stack_pointer = 0x7f0000) {
  const std::string text(crash_headline("rank 3", info, stack_pointer));
  EXPECT_THAT(text, ::testing::StartsWith("[unisono rank 3] pid " + std::to_string(::getpid())));
  EXPECT_EQ(text.back(), '\n');
  const std::size_t cause = text.find("): SIG") + 3;
  return text.substr(cause, text.size() - cause - 1);
}

siginfo_t fault(int signal_number, int code, std::uintptr_t address) {
  siginfo_t info{};
  info.si_signo = signal_number;
  info.si_code = code;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): siginfo_t has addresses as pointers.
  info.si_addr = reinterpret_cast<void*>(address);
  return info;
}

siginfo_t sent(int signal_number, pid_t sender) {
  siginfo_t info{};
  info.si_signo = signal_number;
  info.si_code = SI_TKILL;
  info.si_pid = sender;
  return info;
}

TEST(CrashCause, SaysWhatTheProcessorHasFound) {
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x10)), "SIGSEGV (address 0x10: not mapped)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_ACCERR, 0xabc)),
            "SIGSEGV (address 0xabc: mapped, but not for such an access)");
  EXPECT_EQ(cause_of(fault(SIGBUS, BUS_ADRALN, 0x11)), "SIGBUS (address 0x11: wrongly aligned)");
  EXPECT_EQ(cause_of(fault(SIGFPE, FPE_FLTDIV, 0x400)),
            "SIGFPE (instruction at 0x400: a floating-point number divided by zero)");
  EXPECT_EQ(cause_of(fault(SIGILL, 77, 0x400)), "SIGILL (instruction at 0x400: code 77)");
  EXPECT_THAT(cause_of(fault(SIGSEGV, SI_KERNEL, 0)),
              ::testing::HasSubstr("an address that no memory can have"));
}

TEST(CrashCause, KnowsAStackThatHasOverflowed) {
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x7efff8)),
            "SIGSEGV (address 0x7efff8: not mapped; the stack has overflowed)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x7e0000)),
            "SIGSEGV (address 0x7e0000: not mapped)");
  EXPECT_EQ(cause_of(fault(SIGSEGV, SEGV_MAPERR, 0x10), 0), "SIGSEGV (address 0x10: not mapped)");
}

TEST(CrashCause, SaysWhoHasSentTheSignal) {
  EXPECT_EQ(cause_of(sent(SIGSEGV, ::getpid() + 1)),
            "SIGSEGV (sent by process " + std::to_string(::getpid() + 1) + ")");
  EXPECT_EQ(cause_of(sent(SIGSEGV, ::getpid())), "SIGSEGV (sent by this process itself)");
  EXPECT_THAT(cause_of(sent(SIGABRT, ::getpid())), ::testing::StartsWith("SIGABRT (abort(), "));
}

// Returns the numbers of the frames that are printed for a stack of `n_frames` frames.
std::vector<std::size_t> shown(std::size_t n_frames) {
  std::vector<char> code(n_frames + 1);  // Not part of any file.
  std::vector<void*> stack;
  for (std::size_t i = 0; i < n_frames; ++i) {
    stack.push_back(code.data() + i + (i == 0 ? 0 : 1));
  }
  const std::string text(crash_stack(stack));
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < n_frames; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(code.data() + i);
    if (text.find(fmt::format("  #{} 0x{:x}, where there is no code\n", i, address)) !=
        std::string::npos) {
      numbers.push_back(i);
    }
  }
  const std::string left_out = fmt::format("({} frames left out)", n_frames - numbers.size());
  EXPECT_EQ(text.find(left_out) != std::string::npos, numbers.size() < n_frames) << text;
  return numbers;
}

TEST(CrashStack, HasBothEndsOfADeepStack) {
  for (const std::size_t n_frames : std::vector<std::size_t>{0, 1, 48, 49, 64, 65, 1000}) {
    const std::vector<std::size_t> numbers = shown(n_frames);
    EXPECT_EQ(numbers.size(), std::min<std::size_t>(n_frames, 64));
    if (n_frames > 0) {
      EXPECT_EQ(numbers.front(), 0U);
      EXPECT_EQ(numbers.back(), n_frames - 1);
    }
  }
}

}  // namespace
}  // namespace unisono
