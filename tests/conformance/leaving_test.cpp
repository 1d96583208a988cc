// Messages in transit when ranks destroy their group.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "conformance/message_support.h"
#include "support/process.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;
using test::World;
using ::testing::HasSubstr;

class Leaving : public ::testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         Leaving,
                         ::testing::ValuesIn(test::message_layouts()),
                         ::testing::PrintToStringParamName());

void expect_given_up(const Work& work) {
  try {
    work.wait();
    ADD_FAILURE() << "a message came from nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kClosed);
    EXPECT_THAT(error.what(), HasSubstr("destroyed before a message came"));
  }
}

TEST_P(Leaving, ReceivesOfMessagesThatNobodySendsAreGivenUp) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int world_size = group.world_size();
    std::int32_t from_next = 0;
    std::int32_t from_anybody = 0;
    const Work next =
        group.recv_async(as_buffer(std::span(&from_next, 1)), (group.rank() + 1) % world_size);
    const Work anybody = group.recv_async(as_buffer(std::span(&from_anybody, 1)), kAnySource);
    group.barrier();
    group.destroy();
    expect_given_up(next);
    expect_given_up(anybody);
  });
}

TEST_P(Leaving, AThreadInAReceiveIsLetGo) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    std::promise<pid_t> id;
    std::thread receiver([&group, &id] {
      std::int32_t value = 0;
      id.set_value(::gettid());
      try {
        group.recv(as_buffer(std::span(&value, 1)), kAnySource);
        ADD_FAILURE() << "a message came from nobody";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kClosed);
      }
    });
    test::wait_until_asleep(id.get_future().get());
    group.barrier();
    group.destroy();
    receiver.join();
  });
}

TEST_P(Leaving, WhatWasSentBeforeArrives) {
  for (const std::size_t n_values : {std::size_t{1}, std::size_t{300'000}}) {
    run_ranks(GetParam(), [n_values](ProcessGroup& group) {
      const int world_size = group.world_size();
      const int next = (group.rank() + 1) % world_size;
      const int before = (group.rank() + world_size - 1) % world_size;
      std::vector<std::int32_t> mine(n_values, group.rank());
      std::vector<std::int32_t> theirs(n_values, -1);
      const Work receive = group.recv_async(as_buffer(std::span(theirs)), before);
      // Some ranks destroy their group before their message is sent.
      std::this_thread::sleep_for(std::chrono::milliseconds(100) * group.rank());
      const Work send = group.send_async(as_buffer(std::span(mine)), next);
      group.destroy();
      send.wait();
      receive.wait();
      EXPECT_EQ(theirs, std::vector<std::int32_t>(n_values, before));
    });
  }
}

TEST_P(Leaving, WithAMessageThatDoesNotFitIsAnErrorOnBothRanks) {
  for (const bool is_late : {false, true}) {
    std::promise<void> leaves;
    std::shared_future<void> is_leaving = leaves.get_future().share();
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = test::errors_of_ranks(GetParam(), [&](ProcessGroup& group) {
      std::vector<float> values(8);
      const Buffer buffer = as_buffer(std::span(values));
      if (group.rank() == 0) {
        group.send(buffer, 1, {.tag = 2, .label = "weights"});
        leaves.set_value();
      } else if (group.rank() == 1) {
        is_leaving.wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(is_late ? 500 : 0));
        group.recv(as_buffer(std::span(values).first(4)), 0, {.tag = 2, .label = "gradients"});
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    for (const int rank : {0, 1}) {
      EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                  ::testing::AllOf(HasSubstr("send (f32[8], to rank 1, tag 2) of weights"),
                                   HasSubstr("recv (f32[4], from rank 0, tag 2) of gradients")))
          << "rank " << rank;
    }
  }
}

// Returns the time that rank 0 takes to leave after a send. Rank 1 stays until rank 0 has left.
std::chrono::milliseconds time_to_leave(const World& world, bool is_received) {
  std::promise<void> has_left;
  std::shared_future<void> may_leave = has_left.get_future().share();
  std::chrono::milliseconds time{};
  run_ranks(world, [&](ProcessGroup& group) {
    std::int32_t value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 0) {
      group.send(buffer, 1);
    } else if (group.rank() == 1 && is_received) {
      group.recv(buffer, 0);
    }
    group.barrier();
    if (group.rank() != 0) {
      may_leave.wait();
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    group.destroy();
    time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 begin);
    has_left.set_value();
  });
  return time;
}

TEST_P(Leaving, TakesNoTimeWhereWhatWasSentWasReceived) {
  EXPECT_LT(time_to_leave(GetParam(), true), std::chrono::milliseconds(1500));
}

TEST_P(Leaving, WaitsForALateReceiveForAFewSecondsOnly) {
  const std::chrono::milliseconds time = time_to_leave(GetParam(), false);
  EXPECT_GT(time, std::chrono::milliseconds(2500));
  EXPECT_LT(time, std::chrono::seconds(10));
}

TEST_P(Leaving, RanksThatReceiveNothingDoNotWaitForEachOther) {
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(GetParam(), [](ProcessGroup& group) {
    std::int32_t value = 0;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      group.send(as_buffer(std::span(&value, 1)), rank);
    }
    group.barrier();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
}

}  // namespace
}  // namespace unisono
