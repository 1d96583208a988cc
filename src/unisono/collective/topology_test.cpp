#include "unisono/collective/topology.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::collective {
namespace {

using ::testing::ElementsAre;

TEST(Topology, NodesAreNumberedByTheirLowestRank) {
  const std::vector<std::string> nodes{"b", "a", "b", "c", "a"};
  const Topology topology(4, nodes);
  EXPECT_EQ(topology.n_nodes(), 3);
  EXPECT_EQ(topology.node(), 1);
  EXPECT_THAT(topology.local_ranks(), ElementsAre(1, 4));
  EXPECT_EQ(topology.local_rank(), 1);
  EXPECT_THAT(topology.ranks_of(0), ElementsAre(0, 2));
  EXPECT_EQ(topology.node_of(3), 2);
}

}  // namespace
}  // namespace unisono::collective
