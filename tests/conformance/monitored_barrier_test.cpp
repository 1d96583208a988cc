#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <latch>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<World> kLayouts{one_node(4),
                                  {.nodes = {"a", "a", "b", "b"}},
                                  {.nodes = {"a", "b", "c", "b"}},
                                  {.nodes = {"a", "b", "c", "d"}}};

constexpr int kWorldSize = 4;

struct Scene {
  World world;
  std::set<int> missing;
  bool is_first_call;
};

// Calls the blocking or the asynchronous form.
void meet(ProcessGroup& group, const BarrierOptions& options = {}) {
  if (group.rank() % 2 == 0) {
    group.monitored_barrier(options);
  } else {
    group.monitored_barrier_async(options).wait();
  }
}

struct IncomingFrame {
  std::vector<std::string> errors;
  std::vector<std::vector<int>> late_ranks;
};

// All ranks except the missing ranks call monitored_barrier at about the same time.
IncomingFrame heard_without(const Scene& scene) {
  const auto n_here = static_cast<std::ptrdiff_t>(kWorldSize - scene.missing.size());
  std::latch have_come(n_here);
  std::latch are_over(n_here);
  IncomingFrame heard{.errors = {}, .late_ranks = std::vector<std::vector<int>>(kWorldSize)};
  heard.errors = errors_of_ranks(scene.world, [&](ProcessGroup& group) {
    if (!scene.is_first_call) {
      group.barrier();
    }
    if (scene.missing.contains(group.rank())) {
      are_over.wait();
      return;
    }
    have_come.arrive_and_wait();
    try {
      meet(group, {.timeout = std::chrono::milliseconds(300)});
    } catch (const TimedOut& error) {
      heard.late_ranks[static_cast<std::size_t>(group.rank())] = error.late_ranks();
      are_over.count_down();
      throw;
    } catch (const Error&) {
      are_over.count_down();
      throw;
    }
    are_over.count_down();
  });
  return heard;
}

// Returns the ranks that follow "timed out waiting for".
std::set<int> ranks_named_in(const std::string& error) {
  const std::string late =
      error.substr(std::min(error.size(), error.find("timed out waiting for")));
  std::set<int> named;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    if (late.find("rank " + std::to_string(rank) + " (pid") != std::string::npos) {
      named.insert(rank);
    }
  }
  return named;
}

void expect_all_are_named(const Scene& scene) {
  const std::vector<int> missing(scene.missing.begin(), scene.missing.end());
  const IncomingFrame heard = heard_without(scene);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    const std::string& error = heard.errors[static_cast<std::size_t>(rank)];
    if (!scene.missing.contains(rank)) {
      const std::string where = "nodes " + ::testing::PrintToString(scene.world.nodes) +
                                (scene.is_first_call ? ", first call: " : ": ") + error;
      EXPECT_EQ(ranks_named_in(error), scene.missing) << where;
      EXPECT_EQ(heard.late_ranks[static_cast<std::size_t>(rank)], missing) << where;
      EXPECT_THAT(error, HasSubstr("monitored_barrier"));
    }
  }
}

TEST(MonitoredBarrier, EveryRankNamesJustThoseThatAreMissing) {
  for (const World& world : kLayouts) {
    for (const std::set<int>& missing : {std::set{3}, {1, 2}, {1, 2, 3}}) {
      expect_all_are_named({.world = world, .missing = missing, .is_first_call = false});
    }
  }
}

TEST(MonitoredBarrier, AsTheFirstCallToo) {
  for (const World& world : kLayouts) {
    for (const std::set<int>& missing : {std::set{0}, {2, 3}, {1, 2, 3}}) {
      expect_all_are_named({.world = world, .missing = missing, .is_first_call = true});
    }
  }
}

TEST(MonitoredBarrier, WhoHearsOfAnothersTimeoutKnowsToo) {
  // Ends before any rank analyzes the wait.
  constexpr std::chrono::milliseconds kTimeout(150);
  for (const World& world : kLayouts) {
    std::latch have_come(kWorldSize - 1);
    std::latch are_over(kWorldSize - 1);
    std::atomic<int> n_heard = 0;
    (void)errors_of_ranks(world, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 3) {
        are_over.wait();
        return;
      }
      have_come.arrive_and_wait();
      try {
        meet(group, {.timeout = group.rank() == 0 ? kTimeout : std::chrono::seconds(30)});
      } catch (const TimedOut& error) {
        ++n_heard;
        EXPECT_THAT(error.late_ranks(), Contains(3)) << error.what();
      } catch (const Error&) {
        are_over.count_down();
        throw;
      }
      are_over.count_down();
    });
    EXPECT_GT(n_heard.load(), 1);
  }
}

TEST(MonitoredBarrier, NobodyLeavesBeforeTheLastHasCome) {
  for (const World& world : kLayouts) {
    std::atomic<int> n_arrived = 0;
    run_ranks(world, [&](ProcessGroup& group) {
      for (int round = 1; round <= 20; ++round) {
        ++n_arrived;
        meet(group);
        EXPECT_GE(n_arrived.load(), kWorldSize * round);
        group.monitored_barrier();
      }
    });
  }
}

}  // namespace
}  // namespace unisono
