// UNISONO_CHECK_BUFFERS: programs that access a message's buffer before the wait get an error.
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;
using test::World;

// The first size is sent at once. The second size is sent only after the receive has been posted.
constexpr std::size_t kSizes[] = {8, 300000};

World checking(std::vector<std::string> nodes) {
  return {.nodes = std::move(nodes), .environment = {{"UNISONO_CHECK_BUFFERS", "on"}}};
}

// Returns the error of the wait, or "" after success.
std::string complaint_of(const Work& work) {
  try {
    work.wait();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

class BufferCheck : public ::testing::TestWithParam<World> {};

TEST_P(BufferCheck, AWriteAfterASendBeganIsReportedAndTheGroupGoesOn) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t size : kSizes) {
      std::vector<float> values(size, 1.0F);
      const Buffer buffer = as_buffer(std::span(values));
      if (group.rank() == 0) {
        const Work work = group.send_async(buffer, 1, {.tag = 7});
        values[size / 2] = 2.0F;
        group.barrier();
        EXPECT_EQ(complaint_of(work),
                  "[rank 0/2] send (f32[" + std::to_string(size) +
                      "], to rank 1, tag 7): the buffer was written to before wait()");
        EXPECT_EQ(complaint_of(work), "") << "said once";
      } else {
        group.barrier();
        group.recv(buffer, 0, {.tag = 7});
      }
    }
  });
}

TEST_P(BufferCheck, AWriteIntoWhatWasReceivedIsReported) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t size : kSizes) {
      std::vector<float> values(size, 1.0F);
      const Buffer buffer = as_buffer(std::span(values));
      if (group.rank() == 0) {
        group.send(buffer, 1);
      } else {
        const Work work = group.recv_async(buffer, 0);
        while (!work.is_completed()) {
          std::this_thread::yield();
        }
        values[size / 2] = 2.0F;
        // On aarch64 the message is "read or written to", without a distinction.
        EXPECT_THAT(complaint_of(work),
                    ::testing::MatchesRegex(".rank 1/2. recv .f32." + std::to_string(size) +
                                            "., from rank 0, tag 0.: the buffer was (read or )?"
                                            "written to before wait.*"));
      }
    }
  });
}

TEST_P(BufferCheck, AReadOrWriteBeforeTheWaitIsReportedThoughNothingHasComeYet) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    // A buffer of the second size contains whole pages, which also detect reads.
    for (const std::size_t size : kSizes) {
      for (const bool is_write : {true, false}) {
        std::vector<float> values(size, 1.0F);
        const Buffer buffer = as_buffer(std::span(values));
        if (group.rank() == 0) {
          group.barrier();
          group.send(buffer, 1);
          continue;
        }
        const Work work = group.recv_async(buffer, 0);
        if (is_write) {
          values[size / 2] = 2.0F;
        } else {
          EXPECT_TRUE(std::isnan(values[size / 2])) << "whoever reads it sees that it is too early";
        }
        group.barrier();
        const bool is_noticed = is_write || size == kSizes[1];
        EXPECT_THAT(complaint_of(work),
                    is_noticed
                        ? ::testing::MatchesRegex(
                              ".*recv .f32.*, from rank 0, tag 0.: the buffer was .*" +
                              std::string(is_write ? "written to" : "read") + ".* before wait.*")
                        : ::testing::MatchesRegex(""));
        EXPECT_EQ(values, std::vector<float>(size, 1.0F)) << "the message is there all the same";
      }
    }
  });
}

TEST_P(BufferCheck, ACallbackMayLookAtWhatHasCome) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t size : kSizes) {
      std::vector<float> values(size, 1.0F + static_cast<float>(group.rank()));
      if (group.rank() == 0) {
        group.barrier();
        group.send(as_buffer(std::span(values)), 1);
        continue;
      }
      const Work work = group.recv_async(as_buffer(std::span(values)), 0);
      std::promise<float> seen_in_callback;
      work.on_completion([&](const std::exception_ptr& error) {
        EXPECT_EQ(error, nullptr);
        seen_in_callback.set_value(values.back());
      });
      group.barrier();
      EXPECT_EQ(complaint_of(work), "");
      EXPECT_EQ(values, std::vector<float>(size, 1.0F));
      EXPECT_EQ(seen_in_callback.get_future().get(), 1.0F);
    }
  });
}

TEST_P(BufferCheck, AFailedReceiveLeavesItsBufferToTheProgram) {
  const auto errors = test::errors_of_ranks(GetParam(), [](ProcessGroup& group) {
    std::vector<float> values(kSizes[1], 1.0F);
    if (group.rank() == 1) {
      const Work work = group.recv_async(
          as_buffer(std::span(values)), 0, {.timeout = std::chrono::milliseconds(50)});
      EXPECT_THROW(work.wait(), Error);
      values.assign(values.size(), 3.0F);
      EXPECT_EQ(values.back(), 3.0F);
    }
  });
  EXPECT_EQ(errors.size(), 2);
}

TEST_P(BufferCheck, ThoseThatWaitFirstHearNothing) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t size : kSizes) {
      std::vector<float> values(size, static_cast<float>(group.rank()));
      std::vector<float> received(size);
      const int peer = 1 - group.rank();
      const Work receive = group.recv_async(as_buffer(std::span(received)), peer);
      const Work send = group.send_async(as_buffer(std::span(values)), peer);
      receive.wait();
      EXPECT_EQ(received, std::vector<float>(size, static_cast<float>(peer)));
      received.assign(size, 5.0F);
      send.wait();
      values.assign(size, 6.0F);
      EXPECT_EQ(complaint_of(receive), "");
      EXPECT_EQ(complaint_of(send), "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         BufferCheck,
                         ::testing::Values(checking({"a", "a"}), checking({"a", "b"})));

TEST(BufferCheckOff, NobodyLooks) {
  run_ranks(test::one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(8, 1.0F);
    if (group.rank() == 0) {
      const Work work = group.send_async(as_buffer(std::span(values)), 1);
      values[0] = 2.0F;
      EXPECT_EQ(complaint_of(work), "");
    } else {
      group.recv(as_buffer(std::span(values)), 0);
    }
  });
}

}  // namespace
}  // namespace unisono
