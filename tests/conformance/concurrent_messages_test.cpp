// Messages concurrent with collectives, other threads and sleeping ranks.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "conformance/message_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::as_bytes_buffer;
using test::pattern;
using test::run_ranks;
using test::World;
using ::testing::Each;

class ConcurrentMessages : public ::testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         ConcurrentMessages,
                         ::testing::ValuesIn(test::message_layouts()),
                         ::testing::PrintToStringParamName());

// A waiting receive does not block a collective, and a waiting collective does not block a message.
TEST_P(ConcurrentMessages, AndCollectivesGoOnBesideEachOther) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    float late = 0;
    const Work pending = group.recv_async(as_buffer(std::span(&late, 1)), (group.rank() + 1) % 4);
    float sum = 1;
    group.all_reduce(as_buffer(std::span(&sum, 1)));
    EXPECT_EQ(sum, 4);
    EXPECT_FALSE(pending.is_completed());

    // Rank 0 joins this operation only after it has received a message from each other rank.
    std::int32_t token = group.rank();
    const Buffer buffer = as_buffer(std::span(&token, 1));
    std::vector<float> values(100'000, 1.0F);
    if (group.rank() == 0) {
      for (const int from : {1, 2, 3}) {
        group.recv(buffer, from, {.tag = 9});
      }
      group.all_reduce(as_buffer(std::span(values)));
    } else {
      const Work reduce = group.all_reduce_async(as_buffer(std::span(values)));
      group.send(buffer, 0, {.tag = 9});
      reduce.wait();
    }
    EXPECT_THAT(values, Each(4.0F));

    float own = static_cast<float>(group.rank());
    group.send(as_buffer(std::span(&own, 1)), (group.rank() + 3) % 4);
    pending.wait();
    EXPECT_EQ(late, static_cast<float>((group.rank() + 1) % 4));
  });
}

TEST_P(ConcurrentMessages, OfSeveralThreadsPassBesideCollectives) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kRounds = 100;
    const int next = (group.rank() + 1) % 4;
    const int previous = (group.rank() + 3) % 4;
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 2; ++tag) {
      threads.emplace_back([&, tag] {
        for (int round = 0; round < kRounds; ++round) {
          const std::size_t n_bytes = round % 10 == 0 ? 50'000 : 50;
          std::vector<std::byte> sent = pattern(n_bytes, group.rank(), tag, round);
          std::vector<std::byte> received(n_bytes);
          const Work work = group.send_async(as_bytes_buffer(sent), next, {.tag = tag});
          group.recv(as_bytes_buffer(received), previous, {.tag = tag});
          work.wait();
          EXPECT_EQ(received, pattern(n_bytes, previous, tag, round));
        }
      });
    }
    for (int round = 0; round < kRounds; ++round) {
      float sum = 1;
      group.all_reduce(as_buffer(std::span(&sum, 1)));
      EXPECT_EQ(sum, 4);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

// A message must wake the sleeping thread of a rank, whichever operation the thread waits for.
// Without a wake-up the thread would poll again only at the first stall report, after five seconds.
TEST_P(ConcurrentMessages, WakeARankThatSleepsForOthersToo) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    std::int32_t value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    // Gives the ranks time to sleep. The expected result does not depend on the sleep.
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
    for (const int last : {1, 2, 3}) {
      if (group.rank() == 0) {
        const auto start = std::chrono::steady_clock::now();
        std::int32_t late = 0;
        const Work pending = group.recv_async(as_buffer(std::span(&late, 1)), last, {.tag = 3});
        pause();
        for (const int peer : {1, 2, 3}) {
          group.send(buffer, peer, {.tag = 1});
          group.recv(buffer, peer, {.tag = 2});
        }
        group.send(buffer, last, {.tag = 4});
        pending.wait();
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
        continue;
      }
      group.recv(buffer, 0, {.tag = 1});
      pause();
      group.send(buffer, 0, {.tag = 2});
      if (group.rank() == last) {
        group.recv(buffer, 0, {.tag = 4});
        group.send(buffer, 0, {.tag = 3});
      }
    }
  });
}

TEST_P(ConcurrentMessages, EndWithCallbacks) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int peer = group.rank() ^ 1;
    std::promise<int> source;
    std::int32_t value = 0;
    std::int32_t own = group.rank();
    const Work work = group.recv_async(as_buffer(std::span(&value, 1)), kAnySource, {.tag = 3});
    work.on_completion([&](const std::exception_ptr& error) {
      EXPECT_EQ(error, nullptr);
      source.set_value(work.source_rank());
    });
    group.send(as_buffer(std::span(&own, 1)), peer, {.tag = 3});
    EXPECT_EQ(source.get_future().get(), peer);
    EXPECT_EQ(value, peer);
  });
}

}  // namespace
}  // namespace unisono
