#include "unisono/collective/reduce_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Executes a chunk's combination on symbols.
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

// Messages from the senders' plans, or from the receivers' plans.
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

constexpr std::array kInSteps{Algorithm::kTree,
                              Algorithm::kHalvingDoubling,
                              Algorithm::kRing,
                              Algorithm::kChunkedRing,
                              Algorithm::kParameterServer};

std::string canonical(RankRange range) {
  if (range.size() == 1) {
    return std::to_string(range.lo);
  }
  const int mid = split_point(range);
  return "(" + canonical({range.lo, mid}) + "+" + canonical({mid, range.hi}) + ")";
}

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

// Executes the plans of all ranks on symbols. Each value describes its own computation.
class Rehearsal {
 public:
  Rehearsal(Algorithm algorithm, int world_size)
      : Rehearsal([=](int rank) { return step_plan(algorithm, rank, world_size); }, world_size) {}

  Rehearsal(const std::function<StepPlan(int rank)>& plan_of, int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      plans_.push_back(plan_of(rank));
      const std::vector<std::string> own(index(plans_.front().n_chunks), std::to_string(rank));
      combined_.push_back(own);
      arrived_.push_back(own);
    }
    results_.resize(plans_.size(), std::vector<std::string>(index(plans_.front().n_chunks)));
    sent_chunks_.resize(plans_.size(), 0);
  }

  void run() {
    for (std::size_t step = 0; step < plans_.front().combining.size(); ++step) {
      combine(step);
    }
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      const ChunkRange finished = plans_[rank].finished;
      for (int chunk = finished.begin; chunk < finished.end; ++chunk) {
        results_[rank][index(chunk)] = combined_[rank][index(chunk)];
      }
    }
    for (std::size_t step = 0; step < plans_.front().spreading.size(); ++step) {
      spread(step);
    }
  }

  // Results by rank and chunk.
  [[nodiscard]] const std::vector<std::vector<std::string>>& results() const { return results_; }

  // Returns the amount of data that a rank sends, as a multiple of the buffer.
  [[nodiscard]] double sent_buffers(int rank) const {
    return static_cast<double>(sent_chunks_[index(rank)]) / plans_.front().n_chunks;
  }

  [[nodiscard]] const std::vector<StepPlan>& plans() const { return plans_; }

 private:
  using Values = std::vector<std::vector<std::string>>;

  // Checks that each send has a receive in the same step. Returns the arriving chunks by (from,
  // to).
  std::map<std::pair<int, int>, ChunkRange> match(std::vector<Step> StepPlan::* phase,
                                                  std::size_t step) {
    std::map<std::pair<int, int>, ChunkRange> sends;
    std::map<std::pair<int, int>, ChunkRange> receives;
    for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
      const Step& mine = (plans_[index(rank)].*phase).at(step);
      for (const StepSend& send : mine.sends) {
        EXPECT_TRUE(sends.emplace(std::pair(rank, send.to), send.chunks).second);
        sent_chunks_[index(rank)] += send.chunks.size();
      }
      for (const StepReceive& receive : mine.receives) {
        EXPECT_TRUE(receives.emplace(std::pair(receive.from, rank), receive.chunks).second);
      }
    }
    EXPECT_EQ(sends, receives);
    return sends;
  }

  void combine(std::size_t step) {
    match(&StepPlan::combining, step);
    const bool passes_on = plans_.front().passing == Passing::kArrived;
    const Values before = passes_on ? arrived_ : combined_;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      for (const StepReceive& receive : plans_[rank].combining[step].receives) {
        for (int chunk = receive.chunks.begin; chunk < receive.chunks.end; ++chunk) {
          const std::string& came = before[index(receive.from)][index(chunk)];
          std::string& mine = combined_[rank][index(chunk)];
          mine = receive.is_left ? "(" + came + "+" + mine + ")" : "(" + mine + "+" + came + ")";
          arrived_[rank][index(chunk)] = came;
        }
      }
    }
  }

  void spread(std::size_t step) {
    match(&StepPlan::spreading, step);
    const Values before = results_;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      for (const StepReceive& receive : plans_[rank].spreading[step].receives) {
        for (int chunk = receive.chunks.begin; chunk < receive.chunks.end; ++chunk) {
          results_[rank][index(chunk)] = before[index(receive.from)][index(chunk)];
        }
      }
    }
  }

  std::vector<StepPlan> plans_;
  Values combined_;
  Values arrived_;
  Values results_;
  std::vector<int> sent_chunks_;
};

// Returns the height of a range's tree, which is the number of its steps.
int height_of(RankRange range) {
  if (range.size() == 1) {
    return 0;
  }
  const int mid = split_point(range);
  return 1 + std::max(height_of({range.lo, mid}), height_of({mid, range.hi}));
}

// An additional algorithm: the canonical tree with the result of each range at its last rank. The
// first ranks send to this rank, which then distributes the result.
void add_to_last_rank(StepPlan& plan, int rank, RankRange range) {
  if (range.size() == 1) {
    return;
  }
  const int mid = split_point(range);
  add_to_last_rank(plan, rank, {range.lo, mid});
  add_to_last_rank(plan, rank, {mid, range.hi});
  const std::size_t step = index(height_of(range) - 1);
  const std::size_t step_back = plan.spreading.size() - 1 - step;
  const int from = mid - 1;
  const int to = range.hi - 1;
  if (rank == from) {
    plan.combining[step].sends.push_back({.to = to, .chunks = {0, 1}});
    plan.spreading[step_back].receives.push_back({.from = to, .chunks = {0, 1}});
  } else if (rank == to) {
    plan.combining[step].receives.push_back({.from = from, .chunks = {0, 1}, .is_left = true});
    plan.spreading[step_back].sends.push_back({.to = from, .chunks = {0, 1}});
  }
}

StepPlan last_rank_plan(int rank, int world_size) {
  const std::size_t n_steps = index(height_of({.lo = 0, .hi = world_size}));
  StepPlan plan{.n_chunks = 1,
                .combining = std::vector<Step>(n_steps),
                .finished = {0, rank == world_size - 1 ? 1 : 0},
                .spreading = std::vector<Step>(n_steps)};
  add_to_last_rank(plan, rank, {.lo = 0, .hi = world_size});
  return plan;
}

class StepPlans : public ::testing::TestWithParam<int> {};

TEST_P(StepPlans, CombineInTheOrderOfTheCanonicalTree) {
  for (const Algorithm algorithm : {Algorithm::kTree, Algorithm::kHalvingDoubling}) {
    SCOPED_TRACE(to_string(algorithm));
    Rehearsal rehearsal(algorithm, GetParam());
    rehearsal.run();
    for (const std::vector<std::string>& chunks : rehearsal.results()) {
      for (const std::string& chunk : chunks) {
        EXPECT_EQ(chunk, canonical({.lo = 0, .hi = GetParam()}));
      }
    }
  }
}

TEST_P(StepPlans, OneMoreIsATableOfStepsAndRehearsedAsTheOthersAre) {
  Rehearsal rehearsal([](int rank) { return last_rank_plan(rank, GetParam()); }, GetParam());
  rehearsal.run();
  for (const std::vector<std::string>& chunks : rehearsal.results()) {
    EXPECT_EQ(chunks.front(), canonical({.lo = 0, .hi = GetParam()}));
  }
}

TEST_P(StepPlans, LeaveEveryRankWithEachContributionOnce) {
  for (const Algorithm algorithm : kInSteps) {
    SCOPED_TRACE(to_string(algorithm));
    Rehearsal rehearsal(algorithm, GetParam());
    rehearsal.run();
    for (const std::vector<std::string>& chunks : rehearsal.results()) {
      for (std::string chunk : chunks) {
        std::replace_if(chunk.begin(), chunk.end(), [](char c) { return c < '0' || c > '9'; }, ' ');
        std::multiset<int> ranks;
        for (std::size_t at = chunk.find_first_not_of(' '); at != std::string::npos;
             at = chunk.find_first_not_of(' ', chunk.find(' ', at))) {
          ranks.insert(std::stoi(chunk.substr(at)));
        }
        EXPECT_EQ(ranks.size(), index(GetParam()));
        EXPECT_EQ(std::set(ranks.begin(), ranks.end()).size(), ranks.size());
      }
    }
  }
}

TEST_P(StepPlans, AllRanksHaveTheSameChunksOfARing) {
  Rehearsal rehearsal(Algorithm::kChunkedRing, GetParam());
  rehearsal.run();
  for (const std::vector<std::string>& chunks : rehearsal.results()) {
    EXPECT_EQ(chunks, rehearsal.results().front());
  }
}

// Received chunks of a step lie in different places, so their order does not matter.
TEST_P(StepPlans, ReceiveEachChunkOnceInAStep) {
  for (const Algorithm algorithm : kInSteps) {
    for (int rank = 0; rank < GetParam(); ++rank) {
      const StepPlan plan = step_plan(algorithm, rank, GetParam());
      for (const auto phase : {&StepPlan::combining, &StepPlan::spreading}) {
        for (const Step& step : plan.*phase) {
          std::set<int> chunks;
          for (const StepReceive& receive : step.receives) {
            for (int chunk = receive.chunks.begin; chunk < receive.chunks.end; ++chunk) {
              EXPECT_TRUE(chunks.insert(chunk).second);
            }
          }
        }
      }
    }
  }
}

TEST_P(StepPlans, RingsSendToTheNextRankOnly) {
  const int world_size = GetParam();
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kChunkedRing}) {
    for (int rank = 0; rank < world_size; ++rank) {
      const StepPlan plan = step_plan(algorithm, rank, world_size);
      for (const auto phase : {&StepPlan::combining, &StepPlan::spreading}) {
        for (const Step& step : plan.*phase) {
          for (const StepSend& send : step.sends) {
            EXPECT_EQ(send.to, (rank + 1) % world_size);
          }
          for (const StepReceive& receive : step.receives) {
            EXPECT_EQ(receive.from, (rank + world_size - 1) % world_size);
          }
        }
      }
    }
  }
}

TEST_P(StepPlans, SendNoMoreThanTheyPromise) {
  const double n = GetParam();
  const auto expect_sent = [&](Algorithm algorithm, double of_rank_0, double of_others) {
    SCOPED_TRACE(to_string(algorithm));
    Rehearsal rehearsal(algorithm, GetParam());
    rehearsal.run();
    for (int rank = 0; rank < GetParam(); ++rank) {
      EXPECT_NEAR(rehearsal.sent_buffers(rank), rank == 0 ? of_rank_0 : of_others, 1e-9) << rank;
    }
  };
  expect_sent(Algorithm::kRing, n - 1, n - 1);
  expect_sent(Algorithm::kChunkedRing, 2 * (n - 1) / n, 2 * (n - 1) / n);
  expect_sent(Algorithm::kParameterServer, n - 1, 1);
}

TEST_P(StepPlans, HaveFewSteps) {
  int n_doublings = 0;
  while (1 << n_doublings < GetParam()) {
    ++n_doublings;
  }
  const StepPlan tree = tree_plan(0, GetParam());
  EXPECT_EQ(tree.combining.size(), index(n_doublings));
  EXPECT_EQ(tree.spreading.size(), index(n_doublings));
  EXPECT_EQ(ring_plan(0, GetParam()).combining.size(), index(GetParam() - 1));
  EXPECT_EQ(chunked_ring_plan(0, GetParam()).combining.size(), index(GetParam() - 1));
  const bool is_power = 1 << n_doublings == GetParam();
  if (is_power) {
    EXPECT_EQ(halving_doubling_plan(0, GetParam()).combining.size(), index(n_doublings));
    Rehearsal rehearsal(Algorithm::kHalvingDoubling, GetParam());
    rehearsal.run();
    for (int rank = 0; rank < GetParam(); ++rank) {
      EXPECT_NEAR(rehearsal.sent_buffers(rank), 2.0 * (GetParam() - 1) / GetParam(), 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, StepPlans, ::testing::Range(1, 34));

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
