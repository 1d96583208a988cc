// Groups that several threads of each rank create at the same time, from parents with common ranks.
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/comm/process_group.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/store.h"

#include "new_group_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::kLayouts;
using test::one_node;
using test::run_ranks;
using test::sum_of;
using test::World;

constexpr int kRounds = 40;

// Runs each task on its own thread. Throws the first exception of any task.
void run_at_once(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::exception_ptr> errors(tasks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      threads.emplace_back([&, index] {
        try {
          tasks[index]();
        } catch (...) {
          errors[index] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

// The ranks of a parent create and use one group after the other.
std::function<void()> make_groups(ProcessGroup& parent) {
  return [&parent] {
    std::vector<int> all;
    for (int rank = parent.world_size() - 1; rank >= 0; --rank) {
      all.push_back(rank);
    }
    const std::vector<std::vector<int>> lists{all, {0, 1}, all};
    for (int round = 0; round < kRounds; ++round) {
      const auto one = parent.new_group(all);
      const auto some = parent.new_groups(lists);
      const auto part = parent.split(parent.rank() % 2, 0);
      EXPECT_EQ(sum_of(*one, 1), parent.world_size());
      EXPECT_EQ(sum_of(*some.back(), 1), parent.world_size());
      EXPECT_EQ(sum_of(*part, 1), part->world_size());
    }
  };
}

TEST(GroupsAtOnce, OfTwoParentsWork) {
  for (const World& world : kLayouts) {
    run_ranks(world, [](ProcessGroup& group) {
      const auto reversed = group.split(0, -group.rank());
      run_at_once({make_groups(group), make_groups(*reversed)});
      EXPECT_EQ(sum_of(group, 1), 4);
    });
  }
}

// Each pair of the three ranks has groups in addition to the groups of all ranks. The number of
// groups differs between ranks.
TEST(GroupsAtOnce, OfParentsWithOtherRanksWork) {
  for (const World& world : {one_node(3), World{.nodes = {"a", "b", "b"}}}) {
    run_ranks(world, [](ProcessGroup& group) {
      const std::vector<std::vector<int>> pairs{{0, 1}, {1, 2}, {2, 0}, {0, 1}};
      const auto parents = group.new_groups(pairs);
      std::vector<std::function<void()>> tasks{make_groups(group)};
      for (const auto& parent : parents) {
        if (parent != nullptr) {
          tasks.push_back(make_groups(*parent));
        }
      }
      run_at_once(tasks);
    });
  }
}

TEST(GroupsAtOnce, MayMeetInAStore) {
  for (const World& world : kLayouts) {
    const auto store = std::make_shared<store::HashStore>();
    run_ranks(world, [&](ProcessGroup& group) {
      const auto in_store = [&] {
        for (int round = 0; round < kRounds; ++round) {
          store::PrefixStore own(std::to_string(round), store);
          EXPECT_EQ(sum_of(*group.new_group(std::vector{1, 0, 2, 3}, own), 1), 4);
        }
      };
      const auto parent = group.new_group(std::vector{1, 0, 2, 3});
      run_at_once({make_groups(*parent), in_store});
    });
  }
}

}  // namespace
}  // namespace unisono
