#include "unisono/base/stack_trace.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"

namespace unisono {
namespace {

TEST(FindCode, HasTheFileAndTheOffset) {
  const auto* const address = reinterpret_cast<const void*>(&find_code);
  const CodePlace place = find_code(address);
  ASSERT_NE(place.file, nullptr);
  EXPECT_EQ(place.file, std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(static_cast<const char*>(place.file_begin)[1], 'E');  // The second byte of ELF files.
  // The first byte of a position-independent program has the address 0.
  EXPECT_EQ(place.offset,
            reinterpret_cast<std::uintptr_t>(address) -
                reinterpret_cast<std::uintptr_t>(place.file_begin));
}

TEST(ExportedSymbol, IsTheNameOfALibrarysFunction) {
  const char* const symbol = exported_symbol(::dlsym(RTLD_DEFAULT, "getenv"));
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(std::string_view(symbol), "getenv");
  EXPECT_EQ(exported_symbol(nullptr), nullptr);
}

TEST(FindCode, HasNoFileOfData) {
  const int variable = 0;
  EXPECT_EQ(find_code(&variable).file, nullptr);
  EXPECT_EQ(find_code(&variable).file_begin, nullptr);
  EXPECT_EQ(find_code(nullptr).file, nullptr);
}

std::array<void*, 64> room;
std::span<void*> taken;
Interrupted interrupted;

TEST(TakeStack, BeginsWhereTheSignalHasInterruptedTheThread) {
  prepare_stack_traces();
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    interrupted = interrupted_at(context);
    taken = take_stack(context, room);
  };
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  ::raise(SIGUSR1);
  ::sigaction(SIGUSR1, &before, nullptr);
  ASSERT_GT(taken.size(), 1U);
  EXPECT_EQ(taken.front(), interrupted.program_counter);
  EXPECT_NE(interrupted.stack_pointer, 0U);
}

using ::testing::IsEmpty;
using ::testing::Not;

// A thread in read(2), which ends with the object.
class Reader {
 public:
  explicit Reader(bool blocks_signals) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    read_end_ = Fd(ends[0]);
    write_end_ = Fd(ends[1]);
    thread_ = std::thread([this, blocks_signals] {
      sigset_t all;
      ::sigfillset(&all);
      if (blocks_signals) {
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      }
      ::pthread_setname_np(::pthread_self(), "reader");
      is_ready_.count_down();
      char byte = 0;
      n_read_ = ::read(read_end_.get(), &byte, 1);
    });
    is_ready_.wait();
  }

  ~Reader() { end(); }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  Reader(Reader&&) = delete;
  Reader& operator=(Reader&&) = delete;

  // Returns the result of the thread's read(2).
  ssize_t end() {
    write_end_.reset();
    if (thread_.joinable()) {
      thread_.join();
    }
    return n_read_;
  }

 private:
  Fd read_end_;
  Fd write_end_;
  std::latch is_ready_{1};
  ssize_t n_read_ = -1;
  std::thread thread_;
};

ThreadStack stack_of_reader() {
  for (const ThreadStack& stack : take_stacks(100)) {
    if (stack.name == "reader") {
      return stack;
    }
  }
  ADD_FAILURE() << "the thread is not there";
  return {};
}

// ThreadSanitizer delays a signal while a thread waits.
#ifndef __SANITIZE_THREAD__

TEST(ThreadStacks, AThreadInASystemCallIsSeenAndGoesOn) {
  Reader reader(false);
  for (int n = 0; n < 100; ++n) {
    const ThreadStack stack = stack_of_reader();
    EXPECT_THAT(stack.problem, IsEmpty());
    EXPECT_THAT(stack.frames, Not(IsEmpty()));
  }
  EXPECT_EQ(reader.end(), 0);
}

volatile sig_atomic_t n_signals = 0;

TEST(ThreadStacks, AHandlerOfTheProgramIsLeftAlone) {
  struct sigaction theirs{};
  theirs.sa_handler = [](int) { n_signals = n_signals + 1; };
  Reader reader(false);
  // A handler that the program installs after the first stack must also stay unchanged.
  (void)stack_of_reader();
  std::vector<int> numbers;
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) {
    if (number != SIGRTMIN + 1) {
      ASSERT_EQ(::sigaction(number, &theirs, nullptr), 0);
      numbers.push_back(number);
    }
  }
  EXPECT_THAT(stack_of_reader().frames, Not(IsEmpty()));
  EXPECT_EQ(n_signals, 0);
  for (const int number : numbers) {
    struct sigaction now{};
    ASSERT_EQ(::sigaction(number, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, theirs.sa_handler) << number;
  }
  EXPECT_EQ(reader.end(), 0);
}

#endif

TEST(ThreadStacks, AThreadThatBlocksSignalsSaysSo) {
  Reader reader(true);
  const ThreadStack stack = stack_of_reader();
  EXPECT_EQ(stack.problem, "it blocks signals");
  EXPECT_THAT(stack.frames, IsEmpty());
  EXPECT_EQ(reader.end(), 0);
}

TEST(ThreadStacks, NoMoreThanAskedFor) {
  Reader reader(false);
  Reader another(false);
  EXPECT_EQ(take_stacks(1).size(), 1U);
  EXPECT_THAT(take_stacks(0), IsEmpty());
}

}  // namespace
}  // namespace unisono
