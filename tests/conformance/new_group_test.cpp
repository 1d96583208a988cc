// Subgroups: their members and results, independence from each other, and complete release of their
// resources.
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "new_group_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::kLayouts;
using test::one_node;
using test::run_ranks;
using test::sum_of;
using test::World;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(NewGroup, ItsMembersSumAmongThemselvesAndTheOthersGetNone) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      const auto inner = group.new_group(std::vector{0, 1});
      ASSERT_EQ(inner != nullptr, group.rank() < 2);
      if (inner != nullptr) {
        EXPECT_EQ(inner->rank(), group.rank());
        EXPECT_EQ(inner->world_size(), 2);
        EXPECT_EQ(sum_of(*inner, 1), 2);
        inner->destroy();
      }
      EXPECT_EQ(sum_of(group, 1), 4);
    });
  }
}

TEST(NewGroup, RanksAreNumberedInTheOrderOfTheList) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      const auto inner = group.new_group(std::vector{3, 0, 2});
      if (inner == nullptr) {
        EXPECT_EQ(group.rank(), 1);
        return;
      }
      const std::array<int, 4> expected{1, -1, 2, 0};
      EXPECT_EQ(inner->rank(), expected[static_cast<std::size_t>(group.rank())]);
      // Large enough for windows, and for several messages between nodes.
      std::vector<int> values(300000, group.rank());
      std::vector<int> all(3 * values.size());
      inner->all_gather(as_buffer(std::span(values)), as_buffer(std::span(all)));
      EXPECT_EQ(all.front(), 3);
      EXPECT_EQ(all[values.size()], 0);
      EXPECT_EQ(all.back(), 2);
      inner->broadcast(as_buffer(std::span(values)), {.root = 0});
      EXPECT_EQ(values.back(), 3);
    });
  }
}

TEST(NewGroup, ASplitIsByColourAndKey) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      // Ranks 0 and 2, and ranks 3 and 1 in reverse order.
      const bool is_odd = group.rank() % 2 == 1;
      const auto part = group.split(is_odd ? 1 : 0, is_odd ? -group.rank() : 0);
      ASSERT_NE(part, nullptr);
      const std::array<int, 4> expected{0, 1, 1, 0};
      EXPECT_EQ(part->rank(), expected[static_cast<std::size_t>(group.rank())]);
      EXPECT_EQ(sum_of(*part, group.rank()), is_odd ? 4 : 2);
      EXPECT_EQ(group.split(-1, 0), nullptr);
    });
  }
}

TEST(NewGroup, LocalRanksCountTheMembersOfTheNode) {
  run_ranks({.nodes = {"a", "b", "a", "b"}}, [](ProcessGroup& group) {
    const std::array<int, 4> in_job{0, 0, 1, 1};
    EXPECT_EQ(group.local_rank(), in_job[static_cast<std::size_t>(group.rank())]);
    EXPECT_EQ(group.local_world_size(), 2);
    const auto inner = group.new_group(std::vector{3, 2, 0});
    if (inner != nullptr) {
      const std::array<int, 3> in_group{0, 0, 1};
      EXPECT_EQ(inner->local_rank(), in_group[static_cast<std::size_t>(inner->rank())]);
      EXPECT_EQ(inner->local_world_size(), inner->rank() == 0 ? 1 : 2);
    }
  });
}

TEST(NewGroup, GroupsOfGroupsWork) {
  run_ranks({.nodes = {"a", "a", "b", "b", "b"}}, [](ProcessGroup& group) {
    const auto outer = group.split(group.rank() == 0 ? -1 : 0, 0);
    if (outer == nullptr) {
      return;
    }
    const auto inner = outer->split(outer->rank() / 2, 0);
    EXPECT_EQ(inner->world_size(), 2);
    EXPECT_EQ(sum_of(*inner, group.rank()), outer->rank() < 2 ? 1 + 2 : 3 + 4);
    EXPECT_EQ(sum_of(*outer, 1), 4);
  });
}

TEST(NewGroup, ManyAtOnceTakeNoMoreExchangesThanOne) {
  run_ranks({.nodes = {"a", "a", "b"}}, [](ProcessGroup& group) {
    const auto count_operations = [&] {
      const Work work = group.barrier_async();
      work.wait();
      return work.sequence_number();
    };
    const auto at_first = count_operations();
    const auto one = group.new_group(std::vector{0, 1, 2});
    const auto with_one = count_operations();
    const auto many = group.new_groups(std::vector<std::vector<int>>(30, {2, 0, 1}));
    EXPECT_EQ(count_operations() - with_one, with_one - at_first);
    EXPECT_EQ(sum_of(*many.back(), 1), 3);
  });
}

TEST(NewGroup, AsynchronousCallsInOppositeOrderOnTwoGroupsFinish) {
  for (const World& world : {one_node(2), World{.nodes = {"a", "b"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      const std::vector<std::vector<int>> lists{{0, 1}, {1, 0}};
      const auto groups = group.new_groups(lists);
      const std::size_t first = group.rank() == 0 ? 0 : 1;
      std::array<std::vector<float>, 2> values{std::vector<float>(100000, 1.0F),
                                               std::vector<float>(100000, 2.0F)};
      std::vector<Work> works;
      for (const std::size_t which : {first, 1 - first}) {
        works.push_back(groups[which]->all_reduce_async(as_buffer(std::span(values[which]))));
      }
      for (const Work& work : works) {
        work.wait();
      }
      EXPECT_EQ(values[0].back(), 2.0F);
      EXPECT_EQ(values[1].back(), 4.0F);
    });
  }
}

TEST(NewGroup, MessagesGoByTheRanksOfTheGroup) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      // The reverse order differs from the job's order for every pair.
      const auto inner = group.split(0, -group.rank());
      ASSERT_EQ(inner->rank(), 3 - group.rank());
      for (int step = 1; step < 4; ++step) {
        const int to = (inner->rank() + step) % 4;
        const int from = (inner->rank() + 4 - step) % 4;
        std::vector<int> given(50000, group.rank());
        std::vector<int> taken(given.size(), -1);
        const Work sent = inner->send_async(as_buffer(std::span(given)), to, {.tag = step});
        EXPECT_EQ(inner->recv(as_buffer(std::span(taken)), kAnySource, {.tag = step}), from);
        EXPECT_EQ(taken, std::vector<int>(taken.size(), 3 - from));
        sent.wait();
      }
    });
  }
}

TEST(NewGroup, AThousandLeaveNothingBehind) {
  for (const World& world : {one_node(3), World{.nodes = {"a", "b", "a"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      test::expect_a_thousand_to_leave_nothing(group, [&](int /*round*/) {
        const auto inner = group.new_group(std::vector{2, 0});
        if (inner != nullptr) {
          ASSERT_EQ(sum_of(*inner, 1), 2);
          inner->destroy();
        }
      });
    });
  }
}

TEST(NewGroup, WrongListsAreRefusedAndTheGroupGoesOn) {
  run_ranks(one_node(3), [](ProcessGroup& group) {
    const auto refuses = [&](const std::vector<int>& list, ErrorCode code, const char* says) {
      try {
        (void)group.new_group(list);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        EXPECT_THAT(error.what(), HasSubstr(says));
      }
    };
    refuses({}, ErrorCode::kInvalidArgument, "new_group: a list of ranks is empty");
    refuses({0, 3}, ErrorCode::kInvalidArgument, "rank 3 is outside a world of 3");
    refuses({1, 1}, ErrorCode::kInvalidArgument, "rank 1 is in a list twice");
    refuses({0, group.rank() == 1 ? 1 : 2},
            ErrorCode::kMismatch,
            "rank 1 gave other lists of ranks than rank 0");
    EXPECT_EQ(sum_of(group, 1), 3);
  });
}

TEST(NewGroup, AFailureInOneGroupLeavesTheOthersAlone) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      const auto inner = group.split(group.rank() / 2, 0);
      if (group.rank() < 2) {
        std::vector<float> values(static_cast<std::size_t>(group.rank()) + 1);
        try {
          inner->all_reduce(as_buffer(std::span(values)));
          ADD_FAILURE() << "a mismatch went unnoticed";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kMismatch);
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("[rank " + std::to_string(group.rank()) + "/4, "),
                            HasSubstr("/2 in group "),
                            HasSubstr("f32[1]"),
                            HasSubstr("f32[2]")));
        }
      } else {
        EXPECT_EQ(sum_of(*inner, 1), 2);
      }
      EXPECT_EQ(sum_of(group, 1), 4);
    });
  }
}

TEST(NewGroup, ItsErrorsGiveTheJobsRanks) {
  const auto errors = errors_of_ranks(one_node(4), [](ProcessGroup& group) {
    const auto inner = group.split(group.rank() < 2 ? -1 : 0, 0);
    if (group.rank() == 2) {
      inner->barrier({.timeout = std::chrono::milliseconds(200)});
    }
    group.barrier();
  });
  EXPECT_THAT(errors[2], HasSubstr("rank 3 (pid"));
}

// The order of ranks differs from the job's order.
TEST(NewGroup, AMismatchGivesTheJobsRanks) {
  for (const World& world : {one_node(3), World{.nodes = {"a", "b", "c"}}}) {
    const auto errors = errors_of_ranks(world, [](ProcessGroup& group) {
      const auto inner = group.split(group.rank() == 0 ? -1 : 0, -group.rank());
      if (inner != nullptr) {
        std::vector<float> values(group.rank() == 1 ? 3 : 4);
        inner->all_reduce(as_buffer(std::span(values)));
      }
    });
    for (const int rank : {1, 2}) {
      EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                  AllOf(ContainsRegex("(rank 1 \\(pid [^)]*\\)|this rank) called .*f32\\[3\\]"),
                        ContainsRegex("(rank 2 \\(pid [^)]*\\)|this rank) called .*f32\\[4\\]")));
    }
  }
}

TEST(NewGroup, OutlivesTheGroupItCameFrom) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      const auto inner = group.split(group.rank() % 2, 0);
      group.destroy();
      EXPECT_EQ(sum_of(*inner, 1), 2);
    });
  }
}

}  // namespace
}  // namespace unisono
