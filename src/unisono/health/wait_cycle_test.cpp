#include "unisono/health/wait_cycle.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/health/rank_wait.h"

namespace unisono::health {
namespace {

using ::testing::ElementsAre;

RankWait wait(int rank, std::uint32_t group, const std::vector<int>& late) {
  RankWait result{.id = {.group = group, .sequence = 1},
                  .rank = rank,
                  .late = {},
                  .text = "barrier #1 of group " + std::to_string(group)};
  for (const int one : late) {
    result.late.push_back({.rank = one});
  }
  return result;
}

RankWait receive_from_any(int rank, const std::vector<int>& senders, std::string gone = "") {
  RankWait result = wait(rank, 0, senders);
  result.id.is_message = true;
  result.is_for_any = true;
  result.text = "recv";
  result.gone = std::move(gone);
  return result;
}

// Ranks that are stuck in one wait each, whoever waits for them.
AskRank answers(std::map<int, RankWait> waits, int* n_questions = nullptr) {
  return [waits = std::move(waits), n_questions](int rank, const RankWait&) {
    if (n_questions != nullptr) {
      ++*n_questions;
    }
    const auto found = waits.find(rank);
    return found == waits.end() ? std::nullopt : std::optional(found->second);
  };
}

// Of the circle; none where there is none.
std::vector<int> ranks_of(const std::optional<WaitCycle>& cycle) {
  std::vector<int> ranks;
  for (const RankWait& member : cycle ? cycle->waits : std::vector<RankWait>()) {
    ranks.push_back(member.rank);
  }
  return ranks;
}

TEST(WaitCycle, OfTwoRanksBeginsWithTheOneThatLooks) {
  const RankWait start = wait(1, 2, {0});
  const auto cycle = find_cycle(start, answers({{0, wait(0, 1, {1})}, {1, start}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(1, 0));
}

TEST(WaitCycle, OfARingOfRanksIsFound) {
  constexpr int kRanks = 5;
  std::map<int, RankWait> waits;
  for (int rank = 0; rank < kRanks; ++rank) {
    waits.emplace(rank, wait(rank, static_cast<std::uint32_t>(rank), {(rank + 1) % kRanks}));
  }
  EXPECT_THAT(ranks_of(find_cycle(waits.at(2), answers(waits))), ElementsAre(2, 3, 4, 0, 1));
}

TEST(WaitCycle, IsFoundBesideRanksThatWaitForNothing) {
  const RankWait start = wait(0, 1, {3, 2, 1});
  const auto cycle =
      find_cycle(start, answers({{0, start}, {1, wait(1, 2, {4, 0})}, {2, wait(2, 3, {3})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1));
}

TEST(WaitCycle, IsTheShortestOfSeveral) {
  const RankWait start = wait(0, 1, {1, 2});
  const auto cycle =
      find_cycle(start, answers({{0, start}, {1, wait(1, 2, {2})}, {2, wait(2, 3, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 2));
}

TEST(WaitCycle, NeedsEveryRankInItToBeStuck) {
  const RankWait start = wait(0, 1, {1});
  EXPECT_FALSE(find_cycle(start, answers({{0, start}})));
  EXPECT_FALSE(find_cycle(start, answers({{1, wait(1, 2, {0})}})));
}

TEST(WaitCycle, OfOthersIsNoneOfTheOneThatWaitsForThem) {
  const auto cycle =
      find_cycle(wait(0, 1, {1}), answers({{1, wait(1, 2, {2})}, {2, wait(2, 3, {1})}}));
  EXPECT_FALSE(cycle);
}

// The thread of it that would have to go on waits in another operation than the one that looks.
TEST(WaitCycle, MustComeBackToTheWaitThatItBeganWith) {
  const auto cycle =
      find_cycle(wait(0, 1, {1}), answers({{0, wait(0, 7, {5})}, {1, wait(1, 2, {0})}}));
  EXPECT_FALSE(cycle);
}

// Over a slow network, say.
TEST(WaitCycle, IsNoneWhereAllAreInTheSameOperation) {
  const RankWait start = wait(0, 1, {1, 2});
  const auto cycle =
      find_cycle(start, answers({{0, start}, {1, wait(1, 1, {2, 0})}, {2, wait(2, 1, {0, 1})}}));
  EXPECT_FALSE(cycle);
}

TEST(WaitCycle, MayPassThroughRanksInTheSameOperation) {
  const RankWait start = wait(0, 1, {1});
  const auto cycle =
      find_cycle(start, answers({{0, start}, {1, wait(1, 1, {2, 0})}, {2, wait(2, 2, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
}

// Each rank counts its own messages.
TEST(WaitCycle, MayBeOfReceivesWithTheSameNumber) {
  RankWait start = wait(0, 0, {1});
  RankWait other = wait(1, 0, {0});
  start.id.is_message = other.id.is_message = true;
  EXPECT_THAT(ranks_of(find_cycle(start, answers({{0, start}, {1, other}}))), ElementsAre(0, 1));
}

TEST(WaitCycle, OfAReceiveFromAnyRankNeedsAllThatMaySend) {
  const RankWait start = receive_from_any(0, {1, 2});
  EXPECT_FALSE(find_cycle(start, answers({{0, start}, {1, wait(1, 1, {0})}})));
  EXPECT_FALSE(
      find_cycle(start, answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 1, {3})}})));
  const auto cycle =
      find_cycle(start, answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 1, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text,
            "rank 0 waits in recv for rank 1, which waits in barrier #1 of group 1 for rank 0; "
            "rank 0 waits in recv for rank 2, which waits in barrier #1 of group 1 for rank 0");
  EXPECT_EQ(cycle->gone, "");
  EXPECT_FALSE(find_cycle(receive_from_any(0, {}), answers({})));
}

// Each may have got a message from the rank that is gone.
TEST(WaitCycle, MayBeOfReceivesFromAnyRank) {
  const RankWait start = receive_from_any(0, {1}, "rank 2");
  const RankWait other = receive_from_any(1, {0}, "rank 2");
  const auto cycle = find_cycle(start, answers({{0, start}, {1, other}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text, "rank 0 waits in recv for rank 1, which waits in recv for rank 0");
  EXPECT_EQ(cycle->gone, "rank 2");
  const RankWait free = receive_from_any(1, {0, 2});
  EXPECT_FALSE(find_cycle(start, answers({{0, start}, {1, free}})));
}

TEST(WaitCycle, OfAReceiveFromAnyRankMayLeadToAnother) {
  const RankWait start = receive_from_any(0, {1, 2});
  const auto cycle = find_cycle(
      start,
      answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 2, {3})}, {3, wait(3, 3, {2})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text,
            "rank 0 waits in recv for rank 1, which waits in barrier #1 of group 1 for rank 0; "
            "rank 0 waits in recv for rank 2, which waits in barrier #1 of group 2");
}

TEST(WaitCycle, TheSearchEndsWhereVeryManyRanksWait) {
  constexpr int kRanks = 1000;
  std::vector<int> all;
  std::map<int, RankWait> waits;
  for (int rank = 1; rank < kRanks; ++rank) {
    all.push_back(rank);
  }
  for (const int rank : all) {
    waits.emplace(rank, wait(rank, static_cast<std::uint32_t>(rank), all));
  }
  int n_questions = 0;
  EXPECT_FALSE(find_cycle(wait(0, 0, all), answers(waits, &n_questions)));
  EXPECT_LE(n_questions, 64);
}

TEST(WaitCycle, IsTheSameOnlyIfAllWaitsAre) {
  const std::vector<RankWait> seen{wait(0, 1, {1}), wait(1, 2, {0})};
  std::vector<RankWait> again = seen;
  EXPECT_TRUE(are_same(seen, again));
  again[1].id.sequence = 2;
  EXPECT_FALSE(are_same(seen, again));
  EXPECT_FALSE(are_same({}, seen));
}

TEST(WaitCycle, HasTheSameWordsOnAllItsRanks) {
  const std::vector<RankWait> cycle{wait(2, 3, {0}), wait(0, 1, {1}), wait(1, 2, {2})};
  const std::vector<RankWait> turned{cycle[1], cycle[2], cycle[0]};
  EXPECT_EQ(
      describe_cycle(cycle),
      "rank 0 waits in barrier #1 of group 1 for rank 1, which waits in barrier #1 of group 2 "
      "for rank 2, which waits in barrier #1 of group 3 for rank 0");
  EXPECT_EQ(describe_cycle(turned), describe_cycle(cycle));
}

}  // namespace
}  // namespace unisono::health
