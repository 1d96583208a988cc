// If the thread that watches the other ranks has no memory, the groups fail and the process
// continues.
#include <barrier>
#include <limits>
#include <optional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"
#include "support/starvation.h"

namespace unisono {
namespace {

using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::HasSubstr;

// Both ranks wait for each other while `n_failing` allocations of their watchers fail. The watchers
// are active because a rank has aborted a group, and because watchers send heartbeats between
// nodes.
void expect_failed_groups(const World& world, int n_failing) {
  std::barrier step(2);
  std::optional<test::Starvation> starvation;
  run_ranks(world, [&](ProcessGroup& group) {
    const auto inner = group.split(0, 0);
    int value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    step.arrive_and_wait();
    if (group.rank() == 0) {
      starvation.emplace("unisono-watch", 0, n_failing);
    }
    step.arrive_and_wait();
    if (group.rank() == 1) {
      inner->abort("something to send");
    }
    try {
      group.recv(buffer, 1 - group.rank());
      ADD_FAILURE() << "a message that nobody sent";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("can't watch the other ranks any more"));
    }
    step.arrive_and_wait();
    if (group.rank() == 0) {
      EXPECT_TRUE(starvation->has_struck());
      starvation.reset();
    }
    step.arrive_and_wait();
  });
}

// Between nodes the allocation may fail in a connection attempt, which is repeated. So this test
// uses one node.
TEST(OutOfMemory, OfTheWatcherOnceFailsTheGroups) {
  expect_failed_groups(one_node(2), 1);
}

TEST(OutOfMemory, OfTheWatcherForGoodFailsTheGroups) {
  constexpr int kAll = std::numeric_limits<int>::max();
  expect_failed_groups(one_node(2), kAll);
  expect_failed_groups({.nodes = {"a", "b"}}, kAll);
}

}  // namespace
}  // namespace unisono
