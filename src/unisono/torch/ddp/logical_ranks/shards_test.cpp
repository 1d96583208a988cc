#include "unisono/torch/ddp/logical_ranks/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/kernels/reduce.h"

namespace unisono::ddp {
namespace {

using ::testing::ElementsAre;

TEST(ShardRange, RanksHaveAllShardsInOrderAndEqualSharesOfThem) {
  for (int n_shards = 1; n_shards <= 20; ++n_shards) {
    for (int world_size = 1; world_size <= n_shards; ++world_size) {
      int next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const ShardRange own = shards_of(rank, world_size, n_shards);
        EXPECT_EQ(own.lo, next);
        EXPECT_GE(own.size(), n_shards / world_size);
        EXPECT_LE(own.size(), n_shards / world_size + 1);
        next = own.hi;
      }
      EXPECT_EQ(next, n_shards);
    }
  }
}

TEST(ShardRange, NodesAreSubtreesOfTheTreeOverAllShards) {
  EXPECT_THAT(nodes_of({0, 3}, 8), ElementsAre(ShardRange{0, 2}, ShardRange{2, 3}));
  EXPECT_THAT(nodes_of({5, 8}, 8), ElementsAre(ShardRange{5, 6}, ShardRange{6, 8}));
  EXPECT_THAT(nodes_of({4, 8}, 8), ElementsAre(ShardRange{4, 8}));
}

TEST(ShardRange, OnlyNeighboursOfTheTreeAreAdded) {
  EXPECT_TRUE(is_one_node({0, 1}, {1, 2}, 8));
  EXPECT_TRUE(is_one_node({4, 6}, {6, 8}, 8));
  EXPECT_TRUE(is_one_node({0, 4}, {4, 5}, 5));
  EXPECT_FALSE(is_one_node({1, 2}, {2, 3}, 8));
  EXPECT_FALSE(is_one_node({0, 1}, {1, 4}, 8));
}

// If each rank's subtree of shards is a node, the tree over ranks equals the tree over shards.
TEST(ShardRange, AnAllReduceIsCanonicalWhereTheTreesHaveOneShape) {
  for (int n_shards = 1; n_shards <= 24; ++n_shards) {
    for (int world_size = 1; world_size <= n_shards; ++world_size) {
      std::vector<ShardRange> of_ranks;
      for (int rank = 0; rank < world_size; ++rank) {
        const std::vector<ShardRange> nodes =
            nodes_of(shards_of(rank, world_size, n_shards), n_shards);
        of_ranks.insert(of_ranks.end(), nodes.begin(), nodes.end());
      }
      const bool one_each = static_cast<int>(of_ranks.size()) == world_size;
      const std::vector<kernels::ReduceStep> steps =
          collective::reduce_steps(of_ranks, {0, n_shards});
      const std::vector<kernels::ReduceStep> of_all_reduce =
          collective::reduce_steps(collective::leaves_of({0, world_size}), {0, world_size});
      const bool is_same = one_each && std::equal(steps.begin(),
                                                  steps.end(),
                                                  of_all_reduce.begin(),
                                                  of_all_reduce.end(),
                                                  [](const auto& a, const auto& b) {
                                                    return a.lhs == b.lhs && a.rhs == b.rhs;
                                                  });
      EXPECT_TRUE(is_same || !is_all_reduce_canonical(world_size, n_shards))
          << n_shards << " shards on " << world_size;
    }
  }
  EXPECT_TRUE(is_all_reduce_canonical(4, 8));
  EXPECT_TRUE(is_all_reduce_canonical(3, 6));
  EXPECT_FALSE(is_all_reduce_canonical(3, 8));
  EXPECT_FALSE(is_all_reduce_canonical(2, 6));
}

}  // namespace
}  // namespace unisono::ddp
