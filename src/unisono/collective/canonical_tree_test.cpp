#include "unisono/collective/canonical_tree.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/kernels/reduce.h"

namespace unisono::collective {
namespace {

// A second, plain implementation of the definition.
std::string tree(int lo, int hi) {
  if (hi - lo == 1) {
    return std::to_string(lo);
  }
  int power = 1;
  while (power * 2 < hi - lo) {
    power *= 2;
  }
  return "(" + tree(lo, lo + power) + "+" + tree(lo + power, hi) + ")";
}

std::string evaluate(std::vector<std::string> values, kernels::ReduceSteps steps) {
  for (const kernels::ReduceStep step : steps) {
    values.push_back("(" + values[static_cast<std::size_t>(step.lhs)] + "+" +
                     values[static_cast<std::size_t>(step.rhs)] + ")");
  }
  return values.back();
}

std::string evaluate_ranges(const std::vector<RankRange>& inputs, RankRange whole) {
  std::vector<std::string> values;
  for (const RankRange range : inputs) {
    values.push_back(tree(range.lo, range.hi));
  }
  return evaluate(values, reduce_steps(inputs, whole));
}

TEST(CanonicalTree, FollowsTheDefinitionForSmallWorlds) {
  EXPECT_EQ(tree(0, 5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(tree(0, 6), "(((0+1)+(2+3))+(4+5))");
}

class CanonicalTreeWorlds : public ::testing::TestWithParam<int> {};

TEST_P(CanonicalTreeWorlds, StepsOverSingleRanksGiveTheTree) {
  const int world = GetParam();
  std::vector<RankRange> leaves;
  for (int rank = 0; rank < world; ++rank) {
    leaves.push_back({rank, rank + 1});
  }
  EXPECT_EQ(evaluate_ranges(leaves, {0, world}), tree(0, world));
}

TEST_P(CanonicalTreeWorlds, PartialSumsOfAnyNodesCombineToTheTree) {
  const int world = GetParam();
  std::mt19937 random(static_cast<unsigned>(world));
  for (int trial = 0; trial < 30; ++trial) {
    const int n_nodes = 1 + static_cast<int>(random() % 4);
    std::vector<std::vector<int>> nodes(static_cast<std::size_t>(n_nodes));
    for (int rank = 0; rank < world; ++rank) {
      nodes[random() % nodes.size()].push_back(rank);
    }
    std::vector<RankRange> inputs;
    for (const std::vector<int>& ranks : nodes) {
      for (const RankRange subtree : maximal_subtrees(ranks, world)) {
        inputs.push_back(subtree);
      }
    }
    std::sort(inputs.begin(), inputs.end(), [](RankRange a, RankRange b) { return a.lo < b.lo; });
    EXPECT_EQ(evaluate_ranges(inputs, {0, world}), tree(0, world));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, CanonicalTreeWorlds, ::testing::Range(1, 34));

TEST(CanonicalTree, ContiguousPowersOfTwoAreOneSubtreePerNode) {
  EXPECT_EQ(maximal_subtrees(std::vector{4, 5, 6, 7}, 8), (std::vector<RankRange>{{4, 8}}));
}

TEST(CanonicalTree, TwoNodesOfThreeHoldTwoSubtreesEach) {
  EXPECT_EQ(maximal_subtrees(std::vector{0, 1, 2}, 6), (std::vector<RankRange>{{0, 2}, {2, 3}}));
  EXPECT_EQ(maximal_subtrees(std::vector{3, 4, 5}, 6), (std::vector<RankRange>{{3, 4}, {4, 6}}));
}

TEST(CanonicalTree, RoundRobinRanksStaySingle) {
  EXPECT_EQ(maximal_subtrees(std::vector{0, 2}, 4), (std::vector<RankRange>{{0, 1}, {2, 3}}));
}

TEST(CanonicalTree, InputsThatDoNotMakeUpTheTreeAreRefused) {
  EXPECT_THROW((void)reduce_steps(std::vector<RankRange>{{0, 1}, {1, 3}}, {0, 3}), Error);
  EXPECT_THROW((void)reduce_steps(std::vector<RankRange>{{0, 1}}, {0, 2}), Error);
  EXPECT_THROW((void)reduce_steps(std::vector<RankRange>{{0, 2}, {2, 3}}, {0, 2}), Error);
}

}  // namespace
}  // namespace unisono::collective
