// A rank that can't start another thread must fail its group, because the other ranks wait for an
// operation that this rank can't start.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/testing/no_more_threads.h"
#include "unisono/comm/process_group.h"

#include "new_group_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kNotFound, "no error"};
}

// Rank 0 calls `call`, which needs a new thread.
void expect_failed_group(const World& world,
                         const std::function<void(ProcessGroup& group)>& call,
                         const std::string& problem) {
  run_ranks(world, [&](ProcessGroup& group) {
    group.barrier();
    const auto sum = [&] { (void)test::sum_of(group, 1); };
    if (group.rank() == 1) {
      EXPECT_THAT(error_of(sum).what(), AllOf(HasSubstr("rank 0 (pid"), HasSubstr(problem)));
      return;
    }
    const Error first = [&] {
      const testing::NoMoreThreads none;
      return error_of([&] { call(group); });
    }();
    EXPECT_EQ(first.code(), ErrorCode::kSystem);
    EXPECT_THAT(first.what(), StartsWith("[rank 0/2] " + problem));
    const Error next = error_of(sum);
    EXPECT_EQ(next.code(), ErrorCode::kClosed);
    EXPECT_THAT(next.what(), HasSubstr(std::string("closed since: ") + first.what()));
  });
}

const std::vector<World> kWorlds{one_node(2), World{.nodes = {"a", "b"}}};

TEST(ProgressThread, ThatCannotStartForAnOperationFailsTheGroup) {
  for (const World& world : kWorlds) {
    expect_failed_group(
        world,
        [](ProcessGroup& group) { (void)group.barrier_async(); },
        "can't start the progress thread of its operations: ");
  }
}

TEST(ProgressThread, ThatCannotStartForAMessageFailsTheGroup) {
  for (const World& world : kWorlds) {
    int value = 0;
    expect_failed_group(
        world,
        [&](ProcessGroup& group) { (void)group.recv_async(as_buffer(std::span(&value, 1)), 1); },
        "can't start the progress thread of its messages: ");
  }
}

}  // namespace
}  // namespace unisono
