// What becomes of messages in flight when ranks destroy their group.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <span>
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
      // Some destroy their group before their message is sent.
      std::this_thread::sleep_for(std::chrono::milliseconds(100) * group.rank());
      const Work send = group.send_async(as_buffer(std::span(mine)), next);
      group.destroy();
      send.wait();
      receive.wait();
      EXPECT_EQ(theirs, std::vector<std::int32_t>(n_values, before));
    });
  }
}

}  // namespace
}  // namespace unisono
