#include "unisono/base/thread_stacks.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"

namespace unisono {
namespace {

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

  // What its read(2) returned.
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

// ThreadSanitizer keeps a signal back while a thread waits.
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
  // Also one that was set after the first stack had been taken.
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
