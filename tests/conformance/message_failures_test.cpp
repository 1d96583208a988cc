#include <chrono>
#include <cstddef>
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
#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Kind = PointToPointOperation::Kind;

class MessageFailures : public ::testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         MessageFailures,
                         ::testing::ValuesIn(test::message_layouts()),
                         ::testing::PrintToStringParamName());

// The sender passes a wrong count, dtype or both, in a small message and in a large message.
TEST_P(MessageFailures, AMisfitIsAnErrorOnBothRanksThatNamesBoth) {
  struct Misfit {
    std::size_t n_sent;
    std::size_t n_received;
    DType dtype;
    std::string sent;
    std::string received;
  };

  for (const Misfit& misfit :
       {Misfit{8, 4, DType::kFloat32, "f32[8]", "f32[4]"},
        Misfit{4, 4, DType::kInt32, "i32[4]", "f32[4]"},
        Misfit{100'000, 100'001, DType::kFloat32, "f32[100000]", "f32[100001]"}}) {
    const auto start = std::chrono::steady_clock::now();
    const auto errors = errors_of_ranks(GetParam(), [&](ProcessGroup& group) {
      std::vector<float> values(200'000);
      Buffer buffer = as_buffer(std::span(values));
      std::int32_t reply = 0;
      if (group.rank() == 0) {
        buffer.dtype = misfit.dtype;
        buffer.count = static_cast<std::int64_t>(misfit.n_sent);
        group.send(buffer, 1, {.tag = 5, .label = "weights"});
        group.recv(as_buffer(std::span(&reply, 1)), 1);
      } else if (group.rank() == 1) {
        buffer.count = static_cast<std::int64_t>(misfit.n_received);
        try {
          group.recv(buffer, 0, {.tag = 5, .label = "gradients"});
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kMismatch);
          throw;
        }
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
    const auto names_both = AllOf(HasSubstr("send (" + misfit.sent + ", to rank 1, tag 5)"),
                                  HasSubstr("recv (" + misfit.received + ", from rank 0, tag 5)"),
                                  HasSubstr("rank 0 (pid"),
                                  HasSubstr("rank 1 (pid"),
                                  HasSubstr("of weights"),
                                  HasSubstr("of gradients"));
    EXPECT_THAT(errors[0], names_both);
    EXPECT_THAT(errors[1], names_both);
  }
}

TEST_P(MessageFailures, ATimeoutNamesTheRank) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  const auto errors = errors_of_ranks(GetParam(), [&](ProcessGroup& group) {
    if (group.rank() != 0) {
      is_over.wait();
      return;
    }
    float value = 0;
    const Work other = group.recv_async(as_buffer(std::span(&value, 1)), 2);
    // Gives the progress thread time to sleep with a later deadline than the next call has.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto start = std::chrono::steady_clock::now();
    try {
      group.recv(as_buffer(std::span(&value, 1)),
                 1,
                 {.tag = 4, .timeout = std::chrono::milliseconds(200), .label = "weights"});
      ADD_FAILURE() << "a message came from nobody";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("recv (f32[1], from rank 1, tag 4) of weights"),
                        HasSubstr("rank 1 (pid")));
    }
    // Active and later operations fail together with the receive.
    EXPECT_THROW(other.wait(), Error);
    over.set_value();
    group.send(as_buffer(std::span(&value, 1)), 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("closed since"));
}

TEST_P(MessageFailures, ARankThatLeftIsAnErrorForWhoWaitsForIt) {
  const auto errors = errors_of_ranks(GetParam(), [](ProcessGroup& group) {
    std::int32_t value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 1) {
      group.send(buffer, 0);
    } else if (group.rank() == 0) {
      group.recv(buffer, 1);
      group.recv(buffer, 1);
    }
  });
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1 (pid"), HasSubstr("recv (i32[1], from rank 1")));
}

TEST_P(MessageFailures, AFailedCollectiveEndsMessagesToo) {
  const auto errors = errors_of_ranks(GetParam(), [](ProcessGroup& group) {
    std::vector<float> values(group.rank() == 2 ? 8 : 4);
    float value = 0;
    if (group.rank() == 3) {
      // Receives the error while rank 3 waits for a message that never comes.
      group.recv(as_buffer(std::span(&value, 1)), 0);
      return;
    }
    group.all_reduce(as_buffer(std::span(values)), {.timeout = std::chrono::seconds(1)});
  });
  EXPECT_NE(errors[3], "");
}

TEST(MessageArguments, ThatAreWrongAreRefusedAndTheGroupGoesOn) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::int32_t value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    const auto expect_refused = [](const auto& call, const std::string& problem) {
      try {
        call();
        ADD_FAILURE() << "accepted: " << problem;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(), HasSubstr(problem));
      }
    };
    expect_refused([&] { group.send(buffer, 2); }, "rank 2 is outside a world of 2");
    expect_refused([&] { group.send(buffer, kAnySource); }, "rank -1 is outside");
    expect_refused([&] { group.recv(buffer, -2); }, "rank -2 is outside");
    expect_refused([&] { (void)group.recv_async(buffer, 0, {.tag = -1}); }, "the tag is -1");
    expect_refused([&] { group.recv({.data = nullptr, .count = 1}, 0); }, "data is null");
    expect_refused([&] { group.recv(buffer, 0, {.timeout = std::chrono::milliseconds(0)}); },
                   "the timeout is 0 ms");
    const std::vector<PointToPointOperation> operations{
        {.kind = Kind::kSend, .buffer = buffer, .peer = 1 - group.rank()},
        {.kind = Kind::kRecv, .buffer = buffer, .peer = 9}};
    expect_refused([&] { (void)group.batch(operations); }, "rank 9 is outside");
    group.barrier();
  });
}

TEST(MessagesOfADestroyedGroup, AreRefused) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    group.barrier();
    group.destroy();
    std::int32_t value = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        group.send(as_buffer(std::span(&value, 1)), 1 - group.rank());
        ADD_FAILURE() << "a destroyed group accepted a message";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kClosed);
      }
    }
  });
}

}  // namespace
}  // namespace unisono
