#include "unisono/base/crash_report.h"

#include <signal.h>

#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

// How ranks crash is in tests/multiprocess.

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

// Both ways in one test: they are installed once in a process.
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
