#include "unisono/collective/step_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/algorithm.h"
#include "unisono/collective/canonical_tree.h"

namespace unisono::collective {
namespace {

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

// Carries the plans of all ranks out on symbols: a value says how it came about.
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

  // By rank and chunk.
  [[nodiscard]] const std::vector<std::vector<std::string>>& results() const { return results_; }

  // What a rank sends, in parts of the buffer.
  [[nodiscard]] double sent_buffers(int rank) const {
    return static_cast<double>(sent_chunks_[index(rank)]) / plans_.front().n_chunks;
  }

  [[nodiscard]] const std::vector<StepPlan>& plans() const { return plans_; }

 private:
  using Values = std::vector<std::vector<std::string>>;

  // Each send has its receive in the same step. Returns what arrives, by (from, to).
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

// The height of a range's tree, which is the number of its steps.
int height_of(RankRange range) {
  if (range.size() == 1) {
    return 0;
  }
  const int mid = split_point(range);
  return 1 + std::max(height_of({range.lo, mid}), height_of({mid, range.hi}));
}

// As one more algorithm would be: the canonical tree, with the result of each range at its last
// rank, which the first ones send to, and spreads it.
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

}  // namespace
}  // namespace unisono::collective
