#include "sim_device/stream.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_device/machine.h"

namespace sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options late() {
  Options options;
  options.delay_probability = 1;
  options.max_delay = std::chrono::milliseconds(2);
  return options;
}

Options short_waits() {
  Options options;
  options.wait_limit = std::chrono::seconds(1);
  return options;
}

TEST(Stream, RunsTasksInOrderOnAThreadOfItsOwn) {
  Machine machine{late()};
  Stream& stream = machine.streams.get({0, 0});
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 20; ++i) {
    stream.launch(
        [&, i] {
          order.push_back(i);
          thread = std::this_thread::get_id();
        },
        {});
  }
  stream.synchronize();
  ASSERT_EQ(order.size(), 20U);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(machine.context.tasks, 20U);
}

TEST(Stream, ALaunchDoesNotWait) {
  Machine machine{Options{}};
  Stream& stream = machine.streams.get({0, 0});
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  stream.launch([gone] { gone.wait(); }, {});
  EXPECT_FALSE(stream.is_idle());
  go.set_value();
  stream.synchronize();
  EXPECT_TRUE(stream.is_idle());
}

TEST(Stream, AnEventHoldsBackAnotherStream) {
  Machine machine{late()};
  Stream& first = machine.streams.get({0, 0});
  Stream& second = machine.streams.get({1, 3});
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> is_written{false};
    bool was_written = false;
    first.launch([&] { is_written = true; }, {});
    second.wait(first.record());
    second.launch([&] { was_written = is_written; }, {});
    second.synchronize();
    EXPECT_TRUE(was_written);
  }
}

TEST(Stream, AnEventHasATimeOnceItIsDone) {
  Machine machine{late()};
  Stream& stream = machine.streams.get({0, 0});
  const EventPtr first = stream.record();
  stream.launch([] {}, {});
  const EventPtr second = stream.record();
  second->wait(std::chrono::seconds(10));
  EXPECT_TRUE(first->is_done());
  EXPECT_GE(second->time_ms(), first->time_ms());
}

TEST(Stream, DelaysCanBeSwitchedOff) {
  Options options;
  options.delay_probability = 1;
  options.max_delay = std::chrono::seconds(1);
  Machine machine{options};
  machine.context.delays_enabled = false;
  Stream& stream = machine.streams.get({0, 0});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    stream.launch([] {}, {});
  }
  stream.synchronize();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Stream, DropsATaskBeforeItCountsAsDone) {
  Machine machine{Options{}};
  Stream& stream = machine.streams.get({0, 0});
  for (int i = 0; i < 100; ++i) {
    const auto owned = std::make_shared<int>(7);
    stream.launch([owned] {}, {});
    stream.synchronize();
    EXPECT_EQ(owned.use_count(), 1);
  }
}

TEST(Stream, KeepsErrorsOfTasksUntilTheyAreTaken) {
  Machine machine{Options{}};
  Stream& stream = machine.streams.get({0, 0});
  stream.launch([] { throw std::runtime_error("first"); }, {});
  stream.launch([] { throw std::runtime_error("second"); }, {});
  stream.synchronize();
  EXPECT_THROW(machine.context.errors.rethrow(), std::runtime_error);
  EXPECT_THAT(machine.context.errors.take(), ElementsAre("second"));
  machine.context.errors.rethrow();
}

TEST(Stream, TheDeviceThrowsAnErrorAtASynchronization) {
  Machine machine{Options{}};
  machine.streams.get({2, 5}).launch([] { throw std::runtime_error("late"); }, {});
  EXPECT_THROW(machine.synchronize(2), std::runtime_error);
  machine.synchronize(2);
}

TEST(Stream, AWaitThatTakesTooLongNamesTheTask) {
  Machine machine{short_waits()};
  Stream& stream = machine.streams.get({1, 7});
  std::promise<void> go;
  const Access access{8, 16, true, "aten::slow"};
  stream.launch([&go] { go.get_future().wait(); }, {&access, 1});
  try {
    stream.synchronize();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("sim:1 stream 7"), HasSubstr("aten::slow"), HasSubstr("SIM_WAIT_S")));
  }
  go.set_value();
}

TEST(Stream, AStreamDoesNotWaitForEverForAnEvent) {
  Machine machine{short_waits()};
  Stream& stream = machine.streams.get({0, 0});
  stream.wait(std::make_shared<Event>(Clock{}));
  stream.launch([] {}, {});
  EXPECT_THROW(
      {
        stream.synchronize();
        machine.context.errors.rethrow();
      },
      Error);
}

TEST(Stream, CannotBeUsedInAForkedChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a child of a process with threads";
#endif
  Machine machine{Options{}};
  Stream& stream = machine.streams.get({0, 0});
  stream.synchronize();
  EXPECT_EXIT(
      {
        try {
          stream.launch([] {}, {});
        } catch (const Error& error) {
          (void)!write(STDERR_FILENO, error.what(), std::string_view(error.what()).size());
          _exit(3);
        }
        _exit(0);
      },
      ::testing::ExitedWithCode(3),
      "child of fork");
}

TEST(Streams, ThePoolHasFourStreamsOfAPriority) {
  Machine machine{Options{}};
  const StreamKey first = machine.streams.next_of_pool(1, false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(machine.streams.next_of_pool(1, false), first);
  }
  EXPECT_EQ(machine.streams.next_of_pool(1, false), first);
  EXPECT_NE(machine.streams.next_of_pool(1, true), first);
  EXPECT_NE(machine.streams.make_new(1), machine.streams.make_new(1));
}

TEST(Streams, TheCurrentStreamBelongsToAThread) {
  Machine machine{Options{}};
  EXPECT_EQ(exchange_current_stream({3, 2}), 0);
  EXPECT_EQ(machine.streams.current(3).id(), 2);
  std::thread([] { EXPECT_EQ(current_stream_id(3), 0); }).join();
  EXPECT_EQ(exchange_current_stream({3, 0}), 2);
}

TEST(Streams, ThereIsNoFifthDevice) {
  Machine machine{Options{}};
  EXPECT_THROW(set_current_device(4), Error);
  EXPECT_THROW(machine.streams.get({-1, 0}), Error);
  EXPECT_EQ(current_device(), 0);
}

TEST(Options, ComeFromTheEnvironment) {
  setenv("SIM_SEED", "7", 1);
  setenv("SIM_DELAY_US", "50", 1);
  setenv("SIM_DELAY_P", "0.5", 1);
  setenv("SIM_RACE", "0", 1);
  const Options options = Options::from_environment();
  EXPECT_EQ(options.seed, 7U);
  EXPECT_EQ(options.max_delay, std::chrono::microseconds(50));
  EXPECT_EQ(options.delay_probability, 0.5);
  EXPECT_FALSE(options.check_races);
  EXPECT_TRUE(options.poison);
  setenv("SIM_SEED", "x", 1);
  EXPECT_THROW(Options::from_environment(), Error);
  for (const char* name : {"SIM_SEED", "SIM_DELAY_US", "SIM_DELAY_P", "SIM_RACE"}) {
    unsetenv(name);
  }
}

}  // namespace
}  // namespace sim
