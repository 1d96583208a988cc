// In a group of some of the job's ranks, messages number a rank as the job does, in addition to the
// number that the caller passed.
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::one_node;
using test::World;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::vector<World> kWorlds{one_node(4), World{.nodes = {"a", "a", "b", "b"}}};

constexpr std::chrono::milliseconds kLong{400};

// Returns the errors of ranks 1 and 3 of the job, which are ranks 0 and 1 of the group.
std::vector<std::string> errors_in_group(const World& world,
                                         const std::function<void(ProcessGroup& group)>& call) {
  const auto errors = test::errors_of_ranks(world, [&](ProcessGroup& job) {
    const auto group = job.new_group(std::vector{1, 3});
    if (group != nullptr) {
      call(*group);
    }
  });
  return {errors[1], errors[3]};
}

void reduce(ProcessGroup& group, int root) {
  std::vector<float> values(4);
  const Buffer buffer = as_buffer(std::span(values));
  group.reduce(buffer, buffer, {.root = root});
}

void gather(ProcessGroup& group, int root) {
  std::vector<float> in(4);
  std::vector<float> out(8);
  group.gather(as_buffer(std::span(in)),
               group.rank() == root ? as_buffer(std::span(out)) : Buffer(),
               {.root = root});
}

TEST(NamesInGroups, AMismatchGivesARootBothNumbers) {
  for (const World& world : kWorlds) {
    const auto errors = errors_in_group(world, [](ProcessGroup& group) {
      gather(group, group.rank());
      group.barrier();
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error,
                  AllOf(HasSubstr("gather #1 (f32[4], root 0 (rank 1 of the job))"),
                        HasSubstr("gather #1 (f32[4], root 1 (rank 3 of the job))")));
    }
  }
}

TEST(NamesInGroups, ATimeoutGivesThemInWhatTheLateRankLastDid) {
  for (const World& world : kWorlds) {
    const auto errors = errors_in_group(world, [](ProcessGroup& group) {
      float value = 0;
      const Buffer buffer = as_buffer(std::span(&value, 1));
      reduce(group, 1);
      if (group.rank() == 0) {
        group.broadcast(buffer, {.root = 1, .timeout = kLong});
      } else {
        group.recv(buffer, 0, {.tag = 3});
      }
    });
    EXPECT_THAT(errors[0],
                AllOf(HasSubstr("broadcast #2 (f32[1], root 1 (rank 3 of the job))"),
                      ContainsRegex("waiting for rank 3 [(]pid"),
                      HasSubstr("waits in recv (f32[1], from rank 0 (rank 1 of the job), tag 3)"),
                      HasSubstr("has finished reduce #1 (f32[4], sum, root 1 (rank 3 of the "
                                "job))")));
    EXPECT_THAT(errors[1], HasSubstr("rank 1 (pid"));
  }
}

TEST(NamesInGroups, AMessageThatDoesNotFitGivesBothNumbers) {
  for (const World& world : kWorlds) {
    const auto errors = errors_in_group(world, [](ProcessGroup& group) {
      std::vector<float> values(group.rank() == 0 ? 4 : 5);
      if (group.rank() == 0) {
        group.send(as_buffer(std::span(values)), 1);
        group.barrier();
      } else {
        group.recv(as_buffer(std::span(values)), 0);
      }
    });
    EXPECT_THAT(errors[1],
                AllOf(HasSubstr("send (f32[4], to rank 1 (rank 3 of the job), tag 0)"),
                      HasSubstr("recv (f32[5], from rank 0 (rank 1 of the job), tag 0)")));
  }
}

TEST(NamesInGroups, ARefusedCallGivesThisRanksNumbers) {
  const auto errors = errors_in_group(one_node(4), [](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    std::vector<float> all(2);
    if (group.rank() == 1) {
      group.gather(buffer, as_buffer(std::span(all)), {.root = 0});
    } else {
      group.all_gather(buffer, as_buffer(std::span(all)), {.counts = {1, -1}});
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("the count of rank 1 (rank 3 of the job) is -1"));
  EXPECT_THAT(errors[1], HasSubstr("pass Buffer() on rank 1 (rank 3 of the job)"));
}

TEST(NamesInGroups, OtherListsOfRanksGiveBothNumbers) {
  const auto errors = errors_in_group(
      one_node(4), [](ProcessGroup& group) { (void)group.new_group(std::vector{group.rank()}); });
  const auto text = HasSubstr(
      "rank 1 (rank 3 of the job) gave other lists of ranks than rank 0 (rank 1 of the job)");
  EXPECT_THAT(errors[0], text);
  EXPECT_THAT(errors[1], text);
}

// If a rank has the same number in group and job, messages contain only one number.
TEST(NamesInGroups, TheFirstRanksOfTheJobHaveOneNumber) {
  const auto errors = test::errors_of_ranks(one_node(3), [&](ProcessGroup& job) {
    const auto group = job.new_group(std::vector{0, 1});
    if (group != nullptr) {
      gather(*group, group->rank());
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("gather #1 (f32[4], root 1)"));
}

}  // namespace
}  // namespace unisono
