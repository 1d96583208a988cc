// A rank that leaves many groups in which another rank has timed out reports this once.
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::World;

const std::string kLeaves = "leaves a group that has failed: ";

std::size_t n_lines_with(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

void wait_in_vain(ProcessGroup& group) {
  std::vector<float> data(4);
  EXPECT_THROW(
      group.all_reduce(as_buffer(std::span(data)), {.timeout = std::chrono::milliseconds(300)}),
      Error);
}

// The mismatch may fail on the other rank, or on both.
void try_to_reduce(ProcessGroup& group, const Buffer& buffer) {
  try {
    group.reduce(buffer, buffer);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  }
}

// Returns the log of all ranks after ranks 1 and 2 have timed out in three groups each, in which
// rank 0 never makes a call.
std::string log_of_leaving(World world) {
  ::testing::internal::CaptureStderr();
  test::run_ranks(world, [](ProcessGroup& group) {
    std::vector<std::vector<int>> lists(3, {0, 1});
    lists.insert(lists.end(), 3, {0, 2});
    const std::vector<std::shared_ptr<ProcessGroup>> pairs = group.new_groups(lists);
    for (const std::shared_ptr<ProcessGroup>& pair : pairs) {
      if (pair != nullptr && group.rank() != 0) {
        wait_in_vain(*pair);
      }
    }
    group.barrier();
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(FailuresInGroups, AreSaidOncePerRankThatGaveUp) {
  const std::string log = log_of_leaving(test::one_node(3));
  EXPECT_EQ(n_lines_with(log, kLeaves), 2) << log;
  EXPECT_EQ(n_lines_with(log, "] rank 1 (pid "), 1) << log;
  EXPECT_EQ(n_lines_with(log, "] rank 2 (pid "), 1) << log;
}

TEST(FailuresInGroups, AreAllSaidToWhoDebugs) {
  World world = test::one_node(3);
  world.environment["UNISONO_LOG"] = "debug";
  const std::string log = log_of_leaving(world);
  EXPECT_GT(n_lines_with(log, kLeaves), 2) << log;
  EXPECT_EQ(n_lines_with(log, "warning: [rank 0/3"), 2) << log;
}

// Rank 1 only sends and receives the mismatch of the others while it leaves.
TEST(FailuresInGroups, AreSaidOnceBetweenNodes) {
  ::testing::internal::CaptureStderr();
  test::run_ranks({.nodes = {"a", "b", "c"}}, [](ProcessGroup& world) {
    const std::vector<std::vector<int>> lists(3, {0, 1, 2});
    const std::vector<std::shared_ptr<ProcessGroup>> groups = world.new_groups(lists);
    for (const std::shared_ptr<ProcessGroup>& group : groups) {
      group->barrier();
      std::vector<float> data(world.rank() == 2 ? 5 : 4);
      const Buffer buffer = as_buffer(std::span(data));
      if (world.rank() == 0) {
        EXPECT_THROW(group->reduce(buffer, buffer), Error);
      } else {
        try_to_reduce(*group, buffer);
      }
    }
    world.barrier();
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(n_lines_with(log, "warning: [rank 1/3, 1/3 in group 0.1] " + kLeaves), 1) << log;
  EXPECT_EQ(n_lines_with(log, "warning: [rank 1/3, "), 1) << log;
}

}  // namespace
}  // namespace unisono
