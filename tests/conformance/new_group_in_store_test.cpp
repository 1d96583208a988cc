// Groups that only their own members create, with a rendezvous in a store.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/store.h"
#include "unisono/store/testing/counting_store.h"

#include "new_group_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using store::testing::CountingStore;
using test::kLayouts;
using test::one_node;
using test::run_ranks;
using test::sum_of;
using test::World;
using ::testing::HasSubstr;

TEST(NewGroupInAStore, ItsMembersAloneCallIt) {
  for (const World& world : kLayouts) {
    const auto store = std::make_shared<store::HashStore>();
    run_ranks(world, [&](ProcessGroup& group) {
      if (group.rank() == 1) {
        EXPECT_EQ(sum_of(group, 1), 4);
        return;
      }
      const auto inner = group.new_group(std::vector{3, 0, 2}, *store);
      const std::array<int, 4> expected{1, -1, 2, 0};
      EXPECT_EQ(inner->rank(), expected[static_cast<std::size_t>(group.rank())]);
      EXPECT_EQ(inner->world_size(), 3);
      std::vector<int> values(300000, group.rank());
      inner->all_reduce(as_buffer(std::span(values)));
      EXPECT_EQ(values.back(), 5);
      EXPECT_EQ(sum_of(group, 1), 4);
    });
  }
}

TEST(NewGroupInAStore, RequestsAreAsFewHoweverManyRanksThereAre) {
  for (const int world_size : {2, 9}) {
    store::HashStore store;
    std::vector<int> all(static_cast<std::size_t>(world_size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int> n_requests(all.size());
    run_ranks(one_node(world_size), [&](ProcessGroup& group) {
      CountingStore counting(store);
      const auto inner = group.new_group(all, counting);
      n_requests[static_cast<std::size_t>(group.rank())] = counting.n_requests();
      EXPECT_EQ(sum_of(*inner, 1), world_size);
    });
    // Ranks that arrive early send further requests while waiting.
    EXPECT_LE(*std::min_element(n_requests.begin(), n_requests.end()), 7);
  }
}

// The groups have a common rank or no common rank, and alternate with groups that all ranks create.
TEST(NewGroupInAStore, ManyGoOnBesideEachOther) {
  for (const World& world : kLayouts) {
    const auto store = std::make_shared<store::HashStore>();
    run_ranks(world, [&](ProcessGroup& group) {
      const int rank = group.rank();
      const auto make = [&](const std::vector<int>& list, const char* name) {
        store::PrefixStore own(name, store);
        return group.new_group(list, own);
      };
      std::vector<std::shared_ptr<ProcessGroup>> groups;
      groups.push_back(rank < 2 ? make({0, 1}, "low") : make({2, 3}, "high"));
      groups.push_back(group.split(rank % 2, 0));
      if (rank != 0) {
        groups.push_back(make({1, 2, 3}, "three"));
      }
      groups.push_back(group.new_group(std::vector{0, 1, 2, 3}));
      for (const auto& inner : groups) {
        EXPECT_EQ(sum_of(*inner, 1), inner->world_size());
      }
      EXPECT_EQ(sum_of(*groups.front(), rank), rank < 2 ? 1 : 5);
    });
  }
}

TEST(NewGroupInAStore, ListsThatDifferAreAMismatchOnEveryRankAtOnce) {
  const std::vector<std::vector<std::vector<int>>> cases{
      {{0, 1}, {1, 0}}, {{0, 1}, {0, 1, 2}}, {{0, 1, 2}, {1, 0}}};
  for (const auto& lists : cases) {
    const auto store = std::make_shared<store::HashStore>();
    run_ranks(one_node(3), [&](ProcessGroup& group) {
      if (group.rank() < 2) {
        try {
          (void)group.new_group(lists[static_cast<std::size_t>(group.rank())], *store);
          ADD_FAILURE() << "accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
          EXPECT_THAT(error.what(), HasSubstr("gave another list of ranks"));
        }
      }
      EXPECT_EQ(sum_of(group, 1), 3);
    });
  }
}

TEST(NewGroupInAStore, ARankThatDoesNotComeIsNamed) {
  const auto store = std::make_shared<store::HashStore>();
  run_ranks(one_node(4), [&](ProcessGroup& group) {
    const auto error_of = [&](const std::vector<int>& list, const char* name) {
      store::PrefixStore own(name, store);
      try {
        (void)group.new_group(list, own, {.timeout = std::chrono::milliseconds(200)});
        return std::string("accepted");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kTimeout);
        return std::string(error.what());
      }
    };
    if (group.rank() == 1) {
      EXPECT_EQ(error_of({1, 2, 0, 3}, "first"),
                "new_group: rank 1 timed out waiting for ranks 2, 0, 3 of [1, 2, 0, 3]");
      EXPECT_EQ(error_of({2, 1}, "second"),
                "new_group: rank 1 timed out waiting for rank 2 of [2, 1]");
    }
    EXPECT_EQ(sum_of(group, 1), 4);
  });
}

TEST(NewGroupInAStore, WrongCallsAreRefused) {
  const auto store = std::make_shared<store::HashStore>();
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    const auto error_of = [&](const std::vector<int>& list) {
      try {
        (void)group.new_group(list, *store, {.timeout = std::chrono::seconds(5)});
        return std::string("accepted");
      } catch (const Error& error) {
        return std::string(error.what());
      }
    };
    EXPECT_THAT(error_of({}), HasSubstr("a list of ranks is empty"));
    EXPECT_THAT(error_of({0, 2}), HasSubstr("rank 2 is outside a world of 2"));
    EXPECT_THAT(error_of({1 - group.rank()}), HasSubstr("whose ranks alone meet in the store"));
    EXPECT_EQ(sum_of(group, 1), 2);
    if (group.rank() == 0) {
      store->set("number", "junk");
      EXPECT_THAT(error_of({0}), HasSubstr("does another group use the same prefix?"));
    }
    group.destroy();
    EXPECT_THAT(error_of({0, 1}), HasSubstr("destroyed"));
  });
}

TEST(NewGroupInAStore, AThousandLeaveNothingBehind) {
  const auto store = std::make_shared<store::HashStore>();
  run_ranks(World{.nodes = {"a", "b", "a"}}, [&](ProcessGroup& group) {
    test::expect_a_thousand_to_leave_nothing(group, [&](int round) {
      if (group.rank() != 1) {
        store::PrefixStore own(std::to_string(round), store);
        const auto inner = group.new_group(std::vector{2, 0}, own);
        ASSERT_EQ(sum_of(*inner, 1), 2);
        inner->destroy();
      }
    });
  });
}

}  // namespace
}  // namespace unisono
