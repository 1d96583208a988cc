#include "unisono/launch/binding/share_cores.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/launch/report.h"

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The kernel's files of a machine, written by the test.
class TopologyOfFiles : public ::testing::Test {
 protected:
  void describe(int processor,
                const std::string& siblings,
                const std::string& socket,
                const std::string& cache = "") {
    const std::string folder = "cpu/cpu" + std::to_string(processor);
    (void)folder_.write(folder + "/topology/thread_siblings_list", siblings + "\n");
    (void)folder_.write(folder + "/topology/physical_package_id", socket + "\n");
    if (!cache.empty()) {
      (void)folder_.write(folder + "/cache/index0/shared_cpu_list", siblings + "\n");
      (void)folder_.write(folder + "/cache/index1/shared_cpu_list", cache + "\n");
    }
  }

  void describe_node(int node, const std::string& processors) {
    (void)folder_.write("node/node" + std::to_string(node) + "/cpulist", processors + "\n");
  }

  [[nodiscard]] CoreTopology read(int n_processors) const {
    std::vector<int> processors(static_cast<std::size_t>(n_processors));
    std::iota(processors.begin(), processors.end(), 0);
    return read_topology(processors, folder_.path());
  }

  test::TemporaryFolder folder_;
};

std::vector<std::vector<int>> processors_of(const CoreTopology& topology) {
  std::vector<std::vector<int>> processors;
  for (const Core& core : topology.cores) {
    processors.push_back(core.processors);
  }
  return processors;
}

TEST_F(TopologyOfFiles, HardwareThreadsOfACoreStandTogetherThoughTheirNumbersDoNot) {
  for (int processor = 0; processor < 8; ++processor) {
    const int first = processor % 4;
    describe(processor,
             std::to_string(first) + "," + std::to_string(first + 4),
             std::to_string(first / 2));
  }
  describe_node(0, "0-1,4-5");
  describe_node(1, "2-3,6-7");
  describe_node(2, "");  // A memory node without processors.
  const CoreTopology topology = read(8);
  EXPECT_THAT(
      processors_of(topology),
      ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_EQ(topology.cores[1].numa_node, 0);
  EXPECT_EQ(topology.cores[2].numa_node, 1);
  EXPECT_EQ(topology.cores[1].socket, 0);
  EXPECT_EQ(topology.cores[2].socket, 1);
}

TEST_F(TopologyOfFiles, CoresThatShareACacheStandTogether) {
  describe(0, "0", "0", "0,2");
  describe(1, "1", "0", "1,3");
  describe(2, "2", "0", "0,2");
  describe(3, "3", "0", "1,3");
  EXPECT_THAT(processors_of(read(4)),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1), ElementsAre(3)));
}

TEST_F(TopologyOfFiles, OnlyTheGivenProcessorsCount) {
  describe(0, "0-1", "0");
  describe(1, "0-1", "0");
  describe(2, "2-3", "0");
  describe(3, "2-3", "0");
  EXPECT_THAT(processors_of(read_topology(std::vector<int>{1, 3}, folder_.path())),
              ElementsAre(ElementsAre(1), ElementsAre(3)));
}

TEST_F(TopologyOfFiles, AMachineWithoutADescriptionHasEqualCores) {
  const CoreTopology topology = read(3);
  EXPECT_THAT(processors_of(topology), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_EQ(topology.cores[2].numa_node, 0);
  EXPECT_EQ(topology.cores[2].socket, 0);
}

TEST_F(TopologyOfFiles, ValuesThatAreNotNumbersCountAsMissing) {
  describe(0, "zero", "-1", "0-99999999999999999999");
  describe(1, "", "socket");
  describe(2, "2-", "0", "-3");
  describe_node(7, "a-b,1-,,-2,99999999999999999999");
  (void)folder_.write("node/nodes/cpulist", "0-2\n");
  const CoreTopology topology = read(3);
  EXPECT_THAT(processors_of(topology), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  for (const Core& core : topology.cores) {
    EXPECT_EQ(core.numa_node, 0);
    EXPECT_EQ(core.socket, 0);
  }
}

TEST(Topology, TheNodesOfProcessorsAreSortedAndKnown) {
  const CoreTopology topology{{{{0, 4}, 1, 0}, {{1, 5}, 0, 0}}};
  EXPECT_THAT(numa_nodes_of(topology, std::vector<int>{4}), ElementsAre(1));
  EXPECT_THAT(numa_nodes_of(topology, std::vector<int>{0, 1, 99}), ElementsAre(0, 1));
  EXPECT_THAT(numa_nodes_of(CoreTopology{}, std::vector<int>{3}), IsEmpty());
}

}  // namespace

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;

// `n_nodes` NUMA nodes of `n_cores` each, with hardware threads numbered as Linux does: the first
// thread of every core, then the second of every core.
CoreTopology machine(int n_sockets, int n_nodes, int n_cores, int n_threads) {
  CoreTopology topology;
  const int n_all = n_nodes * n_cores;
  for (int i = 0; i < n_all; ++i) {
    Core core{.processors = {}, .numa_node = i / n_cores, .socket = i * n_sockets / n_all};
    for (int thread = 0; thread < n_threads; ++thread) {
      core.processors.push_back(i + (thread * n_all));
    }
    topology.cores.push_back(core);
  }
  return topology;
}

const CoreTopology kTwoSockets = machine(2, 2, 4, 2);
const CoreTopology kEightCores = machine(1, 1, 8, 1);
const CoreTopology kFourNodes = machine(2, 4, 4, 1);

class ShareCores : public ::testing::Test {
 protected:
  static std::vector<int> counted(int first, int last) {
    std::vector<int> numbers(static_cast<std::size_t>(last - first + 1));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }

  static std::vector<std::string> share(const CoreTopology& topology, int n_ranks, BindTo bind_to) {
    std::vector<std::string> texts;
    for (const std::vector<int>& processors : share_cores(topology, n_ranks, bind_to).processors) {
      texts.push_back(rank_ranges(processors));
    }
    return texts;
  }
};

TEST_F(ShareCores, ARankGetsWholeCoresWithTheirThreads) {
  EXPECT_THAT(share(kTwoSockets, 2, BindTo::kCore), ElementsAre("0-3,8-11", "4-7,12-15"));
  EXPECT_THAT(share(kTwoSockets, 8, BindTo::kCore),
              ElementsAre("0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"));
  EXPECT_EQ(share_cores(kTwoSockets, 2, BindTo::kCore).n_threads, 4);
}

TEST_F(ShareCores, NoRankIsOnTwoNumaNodesThoughRanksAreNoMultipleOfThem) {
  EXPECT_THAT(share(kTwoSockets, 3, BindTo::kCore),
              ElementsAre("0-1,8-9", "2-3,10-11", "4-7,12-15"));
  EXPECT_EQ(share_cores(kTwoSockets, 3, BindTo::kCore).n_threads, 2);
  EXPECT_THAT(share(kFourNodes, 5, BindTo::kCore),
              ElementsAre("0-1", "2-3", "4-7", "8-11", "12-15"));
}

TEST_F(ShareCores, FewerRanksThanNumaNodesGetWholeNodes) {
  EXPECT_THAT(share(kFourNodes, 1, BindTo::kCore), ElementsAre("0-15"));
  EXPECT_THAT(share(kFourNodes, 2, BindTo::kCore), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(share(kFourNodes, 3, BindTo::kCore), ElementsAre("0-3", "4-7", "8-15"));
  EXPECT_EQ(share_cores(kFourNodes, 3, BindTo::kCore).n_threads, 4);
}

TEST_F(ShareCores, SharesDifferByOneCoreAtMost) {
  EXPECT_THAT(share(kEightCores, 3, BindTo::kCore), ElementsAre("0-1", "2-4", "5-7"));
  const CoreShares shares = share_cores(kEightCores, 3, BindTo::kCore);
  EXPECT_EQ(shares.n_threads, 2);
}

TEST_F(ShareCores, OnlyAllowedProcessorsAreGivenAway) {
  const CoreTopology three = restrict_to(kTwoSockets, std::vector<int>{2, 3, 12});
  EXPECT_THAT(share(three, 3, BindTo::kCore), ElementsAre("2", "3", "12"));
  EXPECT_THAT(share(three, 2, BindTo::kCore), ElementsAre("2-3", "12"));
  EXPECT_THAT(share(three, 2, BindTo::kNuma), ElementsAre("2-3", "12"));
  // Seven cores of one node and one core of the other: both ranks run faster on the first node.
  const CoreTopology lopsided = restrict_to(machine(2, 2, 7, 1), counted(0, 7));
  EXPECT_THAT(share(lopsided, 2, BindTo::kCore), ElementsAre("0-2", "3-6"));
  EXPECT_THAT(restrict_to(kTwoSockets, std::vector<int>{99}).cores, IsEmpty());
}

TEST_F(ShareCores, MoreRanksThanCoresGetHardwareThreads) {
  EXPECT_THAT(share(machine(1, 1, 2, 2), 3, BindTo::kCore), ElementsAre("0", "2", "1,3"));
  EXPECT_THAT(share(machine(1, 1, 2, 2), 4, BindTo::kCore), ElementsAre("0", "2", "1", "3"));
  EXPECT_EQ(share_cores(machine(1, 1, 2, 4), 3, BindTo::kCore).n_threads, 1);
}

TEST_F(ShareCores, MoreRanksThanHardwareThreadsShareThemEvenly) {
  EXPECT_THAT(share(machine(1, 1, 2, 1), 5, BindTo::kCore), ElementsAre("0", "0", "0", "1", "1"));
  EXPECT_THAT(share(machine(1, 1, 1, 1), 3, BindTo::kNuma), ElementsAre("0", "0", "0"));
}

TEST_F(ShareCores, WholeNodesAndSocketsAreOfTheRanksOwnCores) {
  EXPECT_THAT(share(kFourNodes, 4, BindTo::kNuma), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(share(kFourNodes, 8, BindTo::kNuma),
              ElementsAre("0-3", "0-3", "4-7", "4-7", "8-11", "8-11", "12-15", "12-15"));
  EXPECT_THAT(share(kFourNodes, 4, BindTo::kSocket), ElementsAre("0-7", "0-7", "8-15", "8-15"));
  EXPECT_EQ(share_cores(kFourNodes, 8, BindTo::kNuma).n_threads, 2);
}

TEST_F(ShareCores, ThreadsOfAllRanksAreNoMoreThanCores) {
  for (const CoreTopology& topology : {kTwoSockets, kEightCores, kFourNodes, machine(3, 3, 5, 1)}) {
    const int n_cores = static_cast<int>(topology.cores.size());
    for (int n_ranks = 1; n_ranks <= n_cores; ++n_ranks) {
      const CoreShares shares = share_cores(topology, n_ranks, BindTo::kCore);
      ASSERT_EQ(shares.processors.size(), static_cast<std::size_t>(n_ranks));
      EXPECT_THAT(shares.n_threads * n_ranks, Le(n_cores))
          << n_cores << " cores, " << n_ranks << " ranks";
      EXPECT_GE(shares.n_threads, 1);
      std::set<int> given;
      for (const std::vector<int>& processors : shares.processors) {
        EXPECT_TRUE(std::ranges::is_sorted(processors));
        const CoreTopology own = restrict_to(topology, processors);
        EXPECT_GE(own.cores.size(), static_cast<std::size_t>(shares.n_threads));
        for (const int processor : processors) {
          EXPECT_TRUE(given.insert(processor).second)
              << "processor " << processor << " belongs to two of " << n_ranks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace unisono::launch
