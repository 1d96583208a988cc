#include "unisono/launch/binding/share_cores.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/binding/read_topology.h"
#include "unisono/launch/binding/topology.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;

// Two sockets, each a NUMA node of four cores with two threads, numbered as Linux does.
constexpr const char* kTwoSockets =
    "pack:2 [numa] core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)";
constexpr const char* kEightCores = "core:8 pu:1";
constexpr const char* kFourNodes = "pack:2 numa:2 core:4 pu:1";

class ShareCores : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)read_topology();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static std::vector<int> counted(int first, int last) {
    std::vector<int> numbers(static_cast<std::size_t>(last - first + 1));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }

  static std::vector<std::string> share(const Topology& topology, int n_ranks, BindTo bind_to) {
    std::vector<std::string> texts;
    for (const std::vector<int>& processors : share_cores(topology, n_ranks, bind_to).processors) {
      texts.push_back(rank_ranges(processors));
    }
    return texts;
  }

  static std::vector<std::string> share(const char* machine, int n_ranks, BindTo bind_to) {
    return share(read_topology(machine), n_ranks, bind_to);
  }
};

TEST_F(ShareCores, TheTopologyHasWhatHwlocKnows) {
  const Topology topology = read_topology(kTwoSockets);
  ASSERT_EQ(topology.cores.size(), 8U);
  EXPECT_THAT(topology.cores[5].processors, ElementsAre(5, 13));
  EXPECT_EQ(topology.cores[3].numa_node, 0);
  EXPECT_EQ(topology.cores[4].numa_node, 1);
  EXPECT_EQ(topology.cores[4].socket, 1);
}

TEST_F(ShareCores, AMachineThatHwlocCanNotDescribeIsRefused) {
  EXPECT_THROW((void)read_topology("cores and more cores"), Error);
}

TEST_F(ShareCores, ARankGetsWholeCoresWithTheirThreads) {
  EXPECT_THAT(share(kTwoSockets, 2, BindTo::kCore), ElementsAre("0-3,8-11", "4-7,12-15"));
  EXPECT_THAT(share(kTwoSockets, 8, BindTo::kCore),
              ElementsAre("0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"));
  EXPECT_EQ(share_cores(read_topology(kTwoSockets), 2, BindTo::kCore).n_threads, 4);
}

TEST_F(ShareCores, NoRankIsOnTwoNumaNodesThoughRanksAreNoMultipleOfThem) {
  EXPECT_THAT(share(kTwoSockets, 3, BindTo::kCore),
              ElementsAre("0-1,8-9", "2-3,10-11", "4-7,12-15"));
  EXPECT_EQ(share_cores(read_topology(kTwoSockets), 3, BindTo::kCore).n_threads, 2);
  EXPECT_THAT(share(kFourNodes, 5, BindTo::kCore),
              ElementsAre("0-1", "2-3", "4-7", "8-11", "12-15"));
}

TEST_F(ShareCores, FewerRanksThanNumaNodesGetWholeNodes) {
  EXPECT_THAT(share(kFourNodes, 1, BindTo::kCore), ElementsAre("0-15"));
  EXPECT_THAT(share(kFourNodes, 2, BindTo::kCore), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(share(kFourNodes, 3, BindTo::kCore), ElementsAre("0-3", "4-7", "8-15"));
  EXPECT_EQ(share_cores(read_topology(kFourNodes), 3, BindTo::kCore).n_threads, 4);
}

TEST_F(ShareCores, SharesDifferByOneCoreAtMost) {
  EXPECT_THAT(share(kEightCores, 3, BindTo::kCore), ElementsAre("0-1", "2-4", "5-7"));
  const CoreShares shares = share_cores(read_topology(kEightCores), 3, BindTo::kCore);
  EXPECT_EQ(shares.n_threads, 2);
}

TEST_F(ShareCores, OnlyAllowedProcessorsAreGivenAway) {
  const Topology machine = read_topology(kTwoSockets);
  const Topology three = restrict_to(machine, std::vector<int>{2, 3, 12});
  EXPECT_THAT(share(three, 3, BindTo::kCore), ElementsAre("2", "3", "12"));
  EXPECT_THAT(share(three, 2, BindTo::kCore), ElementsAre("2-3", "12"));
  EXPECT_THAT(share(three, 2, BindTo::kNuma), ElementsAre("2-3", "12"));
  // Seven cores of one node and one of the other: both ranks are better off on the first.
  const Topology lopsided = restrict_to(read_topology("numa:2 core:7 pu:1"), counted(0, 7));
  EXPECT_THAT(share(lopsided, 2, BindTo::kCore), ElementsAre("0-2", "3-6"));
  EXPECT_THAT(restrict_to(machine, std::vector<int>{99}).cores, IsEmpty());
}

TEST_F(ShareCores, MoreRanksThanCoresGetHardwareThreads) {
  EXPECT_THAT(share("core:2 pu:2", 3, BindTo::kCore), ElementsAre("0", "1", "2-3"));
  EXPECT_THAT(share("core:2 pu:2", 4, BindTo::kCore), ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(share_cores(read_topology("core:2 pu:4"), 3, BindTo::kCore).n_threads, 1);
}

TEST_F(ShareCores, MoreRanksThanHardwareThreadsShareThemEvenly) {
  EXPECT_THAT(share("core:2 pu:1", 5, BindTo::kCore), ElementsAre("0", "0", "0", "1", "1"));
  EXPECT_THAT(share("core:1 pu:1", 3, BindTo::kNuma), ElementsAre("0", "0", "0"));
}

TEST_F(ShareCores, WholeNodesAndSocketsAreOfTheRanksOwnCores) {
  EXPECT_THAT(share(kFourNodes, 4, BindTo::kNuma), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(share(kFourNodes, 8, BindTo::kNuma),
              ElementsAre("0-3", "0-3", "4-7", "4-7", "8-11", "8-11", "12-15", "12-15"));
  EXPECT_THAT(share(kFourNodes, 4, BindTo::kSocket), ElementsAre("0-7", "0-7", "8-15", "8-15"));
  EXPECT_EQ(share_cores(read_topology(kFourNodes), 8, BindTo::kNuma).n_threads, 2);
}

TEST_F(ShareCores, ThreadsOfAllRanksAreNoMoreThanCores) {
  for (const char* machine : {kTwoSockets, kEightCores, kFourNodes, "numa:3 core:5 pu:1"}) {
    const Topology topology = read_topology(machine);
    const int n_cores = static_cast<int>(topology.cores.size());
    for (int n_ranks = 1; n_ranks <= n_cores; ++n_ranks) {
      const CoreShares shares = share_cores(topology, n_ranks, BindTo::kCore);
      ASSERT_EQ(shares.processors.size(), static_cast<std::size_t>(n_ranks));
      EXPECT_THAT(shares.n_threads * n_ranks, Le(n_cores)) << machine << ", " << n_ranks;
      EXPECT_GE(shares.n_threads, 1);
      std::set<int> given;
      for (const std::vector<int>& processors : shares.processors) {
        EXPECT_TRUE(std::ranges::is_sorted(processors));
        const Topology own = restrict_to(topology, processors);
        EXPECT_GE(own.cores.size(), static_cast<std::size_t>(shares.n_threads));
        for (const int processor : processors) {
          EXPECT_TRUE(given.insert(processor).second)
              << machine << ": " << processor << " is of two of " << n_ranks;
        }
      }
    }
  }
}

TEST_F(ShareCores, NodesAreThoseOfTheProcessors) {
  const Topology topology = read_topology(kTwoSockets);
  EXPECT_THAT(numa_nodes_of(topology, std::vector<int>{1, 9}), ElementsAre(0));
  EXPECT_THAT(numa_nodes_of(topology, std::vector<int>{3, 15}), ElementsAre(0, 1));
  EXPECT_THAT(numa_nodes_of(Topology{}, std::vector<int>{3}), IsEmpty());
}

}  // namespace
}  // namespace unisono::launch
