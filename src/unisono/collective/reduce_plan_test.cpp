#include "unisono/collective/reduce_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/topology.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::collective {
namespace {

std::string tree(RankRange range) {
  if (range.size() == 1) {
    return std::to_string(range.lo);
  }
  const int mid = split_point(range);
  return "(" + tree({range.lo, mid}) + "+" + tree({mid, range.hi}) + ")";
}

std::vector<std::string> random_layout(int world, std::mt19937& random) {
  const unsigned n_nodes = 1 + random() % 4;
  std::vector<std::string> nodes;
  for (int rank = 0; rank < world; ++rank) {
    nodes.push_back("node" + std::to_string(random() % n_nodes));
  }
  return nodes;
}

using Plans = std::vector<ReducePlan>;

using MakePlan = ReducePlan (*)(const Topology&, Receivers);

Plans plans_of_all(const std::vector<std::string>& nodes, MakePlan make, Receivers receivers) {
  Plans plans;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    plans.push_back(make(Topology(rank, nodes), receivers));
  }
  return plans;
}

// Carries a chunk's combination out on symbols.
std::string combine(const ChunkPlan& plan) {
  std::vector<std::string> values;
  for (const CombineInput& input : plan.inputs) {
    values.push_back(tree(input.range));
  }
  for (const kernels::ReduceStep step : plan.steps) {
    values.push_back("(" + values[static_cast<std::size_t>(step.lhs)] + "+" +
                     values[static_cast<std::size_t>(step.rhs)] + ")");
  }
  return values.back();
}

using Message = std::pair<std::pair<int, int>, int>;  // ((from, to), chunk)

// Messages as their senders see them, and as their receivers do.
struct Traffic {
  std::map<Message, std::vector<RankRange>> partials;
  std::map<Message, int> results;

  friend bool operator==(const Traffic&, const Traffic&) = default;
};

Traffic sent(const Plans& plans) {
  Traffic traffic;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    for (const ChunkPlan& plan : plans[static_cast<std::size_t>(rank)].chunks) {
      for (const int to : plan.partials_to) {
        traffic.partials[{{rank, to}, plan.chunk}] = plan.partials;
      }
      for (const int to : plan.result_to) {
        traffic.results[{{rank, to}, plan.chunk}] += 1;
      }
    }
  }
  return traffic;
}

Traffic received(const Plans& plans) {
  Traffic traffic;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    for (const ChunkPlan& plan : plans[static_cast<std::size_t>(rank)].chunks) {
      for (const Partials& partials : plan.partials_from) {
        traffic.partials[{{partials.rank, rank}, plan.chunk}] = partials.subtrees;
      }
      if (plan.result_from >= 0) {
        traffic.results[{{plan.result_from, rank}, plan.chunk}] += 1;
      }
    }
  }
  return traffic;
}

class ReducePlans : public ::testing::TestWithParam<int> {
 protected:
  // Calls `check` for all schedules and receivers on many layouts.
  template <class Check>
  void for_each_schedule(Check check) {
    std::mt19937 random(static_cast<unsigned>(GetParam()));
    for (int trial = 0; trial < 10; ++trial) {
      const std::vector<std::string> nodes = random_layout(GetParam(), random);
      const Receivers root{.kind = Receivers::Kind::kRoot,
                           .root = static_cast<int>(random() % nodes.size())};
      check(nodes, plans_of_all(nodes, two_shot_plan, {}));
      check(nodes, plans_of_all(nodes, one_shot_plan, {}));
      check(nodes, plans_of_all(nodes, two_shot_plan, root));
      check(nodes, plans_of_all(nodes, one_shot_plan, root));
      check(nodes, plans_of_all(nodes, two_shot_plan, {.kind = Receivers::Kind::kOwner}));
    }
  }
};

TEST_P(ReducePlans, EveryCombinationIsTheCanonicalTree) {
  for_each_schedule([&](const auto&, const Plans& plans) {
    for (const ReducePlan& plan : plans) {
      for (const ChunkPlan& chunk : plan.chunks) {
        if (chunk.combines()) {
          EXPECT_EQ(combine(chunk), tree({0, GetParam()}));
        }
      }
    }
  });
}

TEST_P(ReducePlans, WhatIsSentIsReceivedAndOnlyBetweenNodes) {
  for_each_schedule([&](const std::vector<std::string>& nodes, const Plans& plans) {
    const Traffic traffic = sent(plans);
    EXPECT_EQ(traffic, received(plans));
    for (const auto& [message, subtrees] : traffic.partials) {
      const auto [from, to] = message.first;
      EXPECT_NE(nodes[static_cast<std::size_t>(from)], nodes[static_cast<std::size_t>(to)]);
    }
  });
}

TEST_P(ReducePlans, EveryNodeWithAReceiverGetsItsChunksOnce) {
  for_each_schedule([&](const std::vector<std::string>& nodes, const Plans& plans) {
    std::map<std::pair<std::string, int>, int> writers;
    std::map<int, int> combiners;
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      for (const ChunkPlan& chunk : plans[rank].chunks) {
        EXPECT_FALSE(chunk.combines() && chunk.result_from >= 0);
        combiners[chunk.chunk] += chunk.combines() ? 1 : 0;
        if (chunk.combines() || chunk.result_from >= 0) {
          writers[{nodes[rank], chunk.chunk}] += 1;
        }
      }
    }
    for (int chunk = 0; chunk < plans[0].n_chunks; ++chunk) {
      EXPECT_GE(combiners[chunk], 1) << "chunk " << chunk;
      for (std::size_t rank = 0; rank < plans.size(); ++rank) {
        if (plans[0].receivers.include(static_cast<int>(rank), chunk)) {
          const int n_writers = writers[{nodes[rank], chunk}];
          EXPECT_EQ(n_writers, 1) << "rank " << rank << " chunk " << chunk;
        }
      }
    }
  });
}

TEST_P(ReducePlans, ResultsGoOnlyToNodesWithAReceiver) {
  for_each_schedule([&](const std::vector<std::string>& nodes, const Plans& plans) {
    const Traffic traffic = sent(plans);
    for (const auto& [message, count] : traffic.results) {
      const auto& [from, to] = message.first;
      bool is_wanted = false;
      for (std::size_t rank = 0; rank < plans.size(); ++rank) {
        const bool is_there = nodes[rank] == nodes[static_cast<std::size_t>(to)];
        is_wanted = is_wanted || (is_there && plans[0].receivers.include(static_cast<int>(rank),
                                                                         message.second));
      }
      EXPECT_TRUE(is_wanted) << "from " << from << " to " << to;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReducePlans, ::testing::Range(1, 34));

class Chunks : public ::testing::TestWithParam<int> {};

TEST_P(Chunks, CoverTheRangeInOrderAndStartOnTheGrain) {
  const int n_chunks = GetParam();
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4097}) {
    const ElementRange range{.begin = 32, .end = 32 + count};
    std::int64_t at = range.begin;
    for (int index = 0; index < n_chunks; ++index) {
      const ElementRange chunk = chunk_of(range, n_chunks, index, 16);
      EXPECT_EQ(chunk.begin, at);
      EXPECT_GE(chunk.end, chunk.begin);
      if (chunk.count() > 0) {
        EXPECT_EQ((chunk.begin - range.begin) % 16, 0);
      }
      at = chunk.end;
    }
    EXPECT_EQ(at, range.end);
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, Chunks, ::testing::Values(1, 2, 3, 7, 16, 33));

}  // namespace
}  // namespace unisono::collective
