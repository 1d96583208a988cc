// Ranks that wait for each other in a cycle, in several groups or with messages, and ranks that
// only appear to do so.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::run_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Nodes = std::vector<std::string>;
using Groups = std::vector<std::shared_ptr<ProcessGroup>>;

// Long enough for checks at 0.3, 0.6 and 1.2 s.
constexpr std::chrono::milliseconds kThreeLooks{1500};

World world(const Nodes& nodes) {
  return {.nodes = nodes, .environment = {{"UNISONO_STALL_SECONDS", "0.3"}}};
}

// Creates a group of each rank and the next rank.
Groups make_ring(ProcessGroup& group) {
  std::vector<std::vector<int>> lists;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    lists.push_back({rank, (rank + 1) % group.world_size()});
  }
  return group.new_groups(lists);
}

void all_reduce(ProcessGroup& group) {
  float value = 0;
  group.all_reduce(as_buffer(std::span(&value, 1)));
}

std::string in_group(const std::string& name, const std::string& ranks) {
  return "all_reduce #1 (f32[1], sum) of group " + name + " (ranks " + ranks + ")";
}

class Deadlock : public ::testing::TestWithParam<Nodes> {};

TEST_P(Deadlock, OfTwoGroupsIsAnErrorOnBothRanksThatNamesIt) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto first = group.new_group(std::vector{0, 1});
    const auto second = group.new_group(std::vector{0, 1});
    if (group.rank() > 1) {
      return;
    }
    all_reduce(group.rank() == 0 ? *first : *second);
    all_reduce(group.rank() == 0 ? *second : *first);
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(errors[rank],
                HasSubstr("ranks wait for each other: rank 0 waits in " + in_group("0.1", "0, 1") +
                          " for rank 1, which waits in " + in_group("0.2", "0, 1") +
                          " for rank 0; call the operations of all groups in the same order on "
                          "all ranks"));
  }
}

TEST_P(Deadlock, OfThreeGroupsNamesAll) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const Groups ring = make_ring(group);
    all_reduce(*ring[static_cast<std::size_t>(group.rank())]);
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr("rank 0 waits in " + in_group("0.1", "0, 1") + " for rank 1, which waits in " +
                     in_group("1.1", "1, 2") + " for rank 2, which waits in " +
                     in_group("2.1", "2, 0") + " for rank 0;")));
}

TEST_P(Deadlock, OfReceivesIsFound) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    const int next = (group.rank() + 1) % group.world_size();
    const int before = (group.rank() + group.world_size() - 1) % group.world_size();
    // Messages that have arrived, and a message that no rank receives.
    group.send(buffer, next, {.tag = 1});
    group.send(buffer, next, {.tag = 2});
    group.recv(buffer, before, {.tag = 1});
    group.recv(buffer, before, {.tag = 3});
    group.send(buffer, next, {.tag = 3});
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 0 waits in recv (f32[1], from rank 2, tag 3) of the group "
                                   "of all ranks for rank 2, which waits in recv"),
                         HasSubstr(" for rank 0;"))));
}

TEST_P(Deadlock, OfAReceiveAndAnOperationIsFound) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = 0;
    if (group.rank() == 0) {
      group.recv(as_buffer(std::span(&value, 1)), 1);
    }
    group.barrier();
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("rank 0 waits in recv (f32[1], from rank 1, tag 0) of the group of "
                             "all ranks for rank 1, which waits in barrier #1 of the group of all "
                             "ranks for rank ")));
}

TEST_P(Deadlock, OfAReceiveFromAnyRankIsFoundWhereAllOthersWaitForIt) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = 0;
    if (group.rank() == 0) {
      group.recv(as_buffer(std::span(&value, 1)), kAnySource);
    }
    group.barrier();
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 0 waits in recv (f32[1], from any rank, tag 0) of the "
                                   "group of all ranks for rank 1, which waits in barrier #1"),
                         HasSubstr("for rank 2, which waits in barrier #1"))));
}

// Ranks of other nodes have no connection to the rank that could have sent.
TEST_P(Deadlock, OfAReceiveFromAnyRankIsFoundWhereTheOthersHaveLeft) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = 0;
    if (group.rank() == 0) {
      group.recv(as_buffer(std::span(&value, 1)), kAnySource);
    } else if (group.rank() == 1) {
      group.gather(as_buffer(std::span(&value, 1)), Buffer());
    }
  });
  const bool is_one_node = GetParam() == Nodes{"a", "a", "a"};
  for (const std::size_t rank : {0U, 1U}) {
    if (is_one_node) {
      EXPECT_THAT(errors[rank], HasSubstr("rank 2 (pid "));
      continue;
    }
    EXPECT_THAT(
        errors[rank],
        AllOf(
            HasSubstr("rank 0 waits in recv (f32[1], from any rank, tag 0) of the group "
                      "of all ranks for rank 1, which waits in gather #1"),
            HasSubstr("all other ranks that could send have left the group, or are gone: rank 2")));
  }
}

TEST_P(Deadlock, OfTwoReceivesFromAnyRankIsFoundWhereTheOthersHaveLeft) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = 0;
    if (group.rank() != 2) {
      group.recv(as_buffer(std::span(&value, 1)), kAnySource);
    }
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(
        errors[rank],
        AllOf(
            HasSubstr("of the group of all ranks for rank 1, which waits in recv (f32[1], "
                      "from any rank, tag 0) of the group of all ranks for rank 0"),
            HasSubstr("all other ranks that could send have left the group, or are gone: rank 2")));
  }
}

TEST_P(Deadlock, IsNoneWhereSomebodyMaySendToWhoReceivesFromAny) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    float value = static_cast<float>(group.rank());
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() == 0) {
      EXPECT_EQ(group.recv(buffer, kAnySource), 2);
    } else if (group.rank() == 2) {
      std::this_thread::sleep_for(kThreeLooks);
      group.send(buffer, 0);
    }
    group.barrier();
  });
}

TEST_P(Deadlock, OfAsynchronousOperationsThatAreWaitedForIsFound) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const Groups ring = make_ring(group);
    float value = 0;
    ring[static_cast<std::size_t>(group.rank())]
        ->all_reduce_async(as_buffer(std::span(&value, 1)))
        .wait();
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks wait for each other: rank 0 waits in ")));
}

// Each operation depends on data from ranks that have not called the operation.
TEST_P(Deadlock, OfRanksThatOnlyReceiveInTheirOperationIsFound) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const Groups ring = make_ring(group);
    std::vector<float> values(2);
    const Buffer both = as_buffer(std::span(values));
    const Buffer one = as_buffer(std::span(values).first(1));
    // Each rank is the first rank of its own group of two.
    ProcessGroup& own = *ring[static_cast<std::size_t>(group.rank())];
    if (group.rank() == 0) {
      own.gather(one, both, {.root = 0});
    } else if (group.rank() == 1) {
      own.scatter(Buffer(), one, {.root = 1});
    } else {
      own.reduce(one, one, {.root = 0});
    }
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("ranks wait for each other: rank 0 waits in gather #1 "),
                         HasSubstr("rank 1, which waits in scatter #1 "),
                         HasSubstr("rank 2, which waits in reduce #1 "))));
}

TEST_P(Deadlock, OfARankThatOnlySendsInItsOperationIsFound) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto ends = group.new_group(std::vector{0, 2});
    const bool is_root = group.rank() == 2;
    // More data than sockets buffer.
    std::vector<float> block(std::size_t{8} << 20);
    std::vector<float> blocks(is_root ? block.size() * 3 : 0);
    if (is_root) {
      all_reduce(*ends);
    }
    group.gather(as_buffer(std::span(block)), as_buffer(std::span(blocks)), {.root = 2});
    if (group.rank() == 0) {
      all_reduce(*ends);
    }
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("ranks wait for each other: rank 0 waits in gather #"),
                         HasSubstr("for rank 2, which waits in all_reduce #1 "))));
}

// The ranks have called all groups before: each wait is in the second call.
TEST_P(Deadlock, IsFoundLaterThanAtTheFirstCalls) {
  const auto errors = errors_of_ranks(world(GetParam()), [](ProcessGroup& group) {
    const Groups ring = make_ring(group);
    for (const auto& member : ring) {
      if (member != nullptr) {
        all_reduce(*member);
      }
    }
    all_reduce(*ring[static_cast<std::size_t>(group.rank())]);
  });
  EXPECT_THAT(errors, Each(HasSubstr("waits in all_reduce #2 ")));
}

// Another thread of the waiting rank makes the calls of the other group.
TEST_P(Deadlock, IsNoneWhereAnotherThreadMayCall) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto first = group.new_group(std::vector{0, 1});
    const auto second = group.new_group(std::vector{0, 1});
    if (group.rank() > 1) {
      return;
    }
    ProcessGroup& own = group.rank() == 0 ? *first : *second;
    ProcessGroup& others = group.rank() == 0 ? *second : *first;
    std::future<void> beside = std::async(std::launch::async, [&] {
      all_reduce(others);
      std::this_thread::sleep_for(kThreeLooks);
      all_reduce(others);
    });
    all_reduce(own);
    all_reduce(own);
    beside.get();
  });
}

TEST_P(Deadlock, IsNoneWhereSeveralThreadsHaveCalled) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto first = group.new_group(std::vector{0, 1});
    const auto second = group.new_group(std::vector{0, 1});
    if (group.rank() > 1) {
      return;
    }
    ProcessGroup& own = group.rank() == 0 ? *first : *second;
    ProcessGroup& others = group.rank() == 0 ? *second : *first;
    std::latch is_ready(1);
    std::future<void> beside = std::async(std::launch::async, [&] {
      float value = 0;
      group.send(as_buffer(std::span(&value, 1)), group.rank());
      group.recv(as_buffer(std::span(&value, 1)), group.rank());
      is_ready.count_down();
      std::this_thread::sleep_for(kThreeLooks);
      all_reduce(others);
    });
    is_ready.wait();
    all_reduce(own);
    beside.get();
  });
}

// Rank 0 has an active operation but does not wait for the operation.
TEST_P(Deadlock, IsNoneOfAnOperationThatNobodyWaitsFor) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto first = group.new_group(std::vector{0, 1});
    const auto second = group.new_group(std::vector{0, 1});
    if (group.rank() == 0) {
      float value = 0;
      const Work work = first->all_reduce_async(as_buffer(std::span(&value, 1)));
      EXPECT_FALSE(work.try_wait(kThreeLooks));
      all_reduce(*second);
      work.wait();
    } else if (group.rank() == 1) {
      all_reduce(*second);
      all_reduce(*first);
    }
  });
}

// A callback makes the call that rank 1 waits for when rank 2 has joined the operation of all
// ranks.
TEST_P(Deadlock, IsNoneWhereACallbackMayCall) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    const auto first = group.new_group(std::vector{0, 1});
    const auto second = group.new_group(std::vector{0, 1});
    if (group.rank() == 2) {
      std::this_thread::sleep_for(kThreeLooks);
    }
    const Work barrier = group.barrier_async();
    if (group.rank() == 0) {
      const auto value = std::make_shared<float>(0.0F);
      const auto called = std::make_shared<std::promise<Work>>();
      barrier.on_completion([second, value, called](const std::exception_ptr&) {
        try {
          called->set_value(second->all_reduce_async(as_buffer(std::span(value.get(), 1))));
        } catch (...) {
          called->set_exception(std::current_exception());
        }
      });
      all_reduce(*first);
      called->get_future().get().wait();
    } else if (group.rank() == 1) {
      all_reduce(*second);
      all_reduce(*first);
    }
    barrier.wait();
  });
}

// All ranks have called the operation. Rank 1 has waited for rank 0 and now takes long for its
// part.
TEST_P(Deadlock, IsNoneInASlowOperation) {
  run_ranks(world(GetParam()), [](ProcessGroup& group) {
    if (group.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    bool is_slow = group.rank() == 1;
    const auto combine = [&](const void* lhs, const void* rhs, void* result, std::int64_t count) {
      if (std::exchange(is_slow, false)) {
        std::this_thread::sleep_for(kThreeLooks);
      }
      const auto* const left = static_cast<const float*>(lhs);
      std::transform(left,
                     left + count,
                     static_cast<const float*>(rhs),
                     static_cast<float*>(result),
                     std::plus<>());
    };
    std::vector<float> values(1 << 20, 1.0F);
    group.all_reduce(as_buffer(std::span(values)),
                     {.op = user_reduction({.combine = combine, .name = "slow_sum"})});
    EXPECT_EQ(values.back(), static_cast<float>(group.world_size()));
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Deadlock,
                         ::testing::Values(Nodes{"a", "a", "a"},
                                           Nodes{"a", "a", "b"},
                                           Nodes{"a", "b", "c"}),
                         [](const auto& case_info) {
                           std::string name;
                           for (const std::string& node : case_info.param) {
                             name += node;
                           }
                           return name;
                         });

}  // namespace
}  // namespace unisono
