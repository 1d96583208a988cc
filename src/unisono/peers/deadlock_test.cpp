#include "unisono/peers/deadlock.h"

#include <cstdint>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::peers {
namespace {

using ::testing::ElementsAre;

transport::Stall wait(int rank, std::uint32_t group, const std::vector<int>& late) {
  transport::Stall result{.id = {.group = group, .sequence = 1},
                          .rank = rank,
                          .late = {},
                          .text = "barrier #1 of group " + std::to_string(group)};
  for (const int one : late) {
    result.late.push_back({.rank = one});
  }
  return result;
}

transport::Stall receive_from_any(int rank,
                                  const std::vector<int>& senders,
                                  std::string gone = "") {
  transport::Stall result = wait(rank, 0, senders);
  result.id.is_message = true;
  result.is_for_any = true;
  result.text = "recv";
  result.gone = std::move(gone);
  return result;
}

// Answers of ranks that are blocked in one wait each.
AskRank answers(std::map<int, transport::Stall> waits, int* n_questions = nullptr) {
  return [waits = std::move(waits), n_questions](int rank, const transport::Stall&) {
    if (n_questions != nullptr) {
      ++*n_questions;
    }
    const auto found = waits.find(rank);
    return found == waits.end() ? std::nullopt : std::optional(found->second);
  };
}

// Returns the ranks of the cycle; empty if there is no cycle.
std::vector<int> ranks_of(const std::optional<Deadlock>& cycle) {
  std::vector<int> ranks;
  for (const transport::Stall& member : cycle ? cycle->waits : std::vector<transport::Stall>()) {
    ranks.push_back(member.rank);
  }
  return ranks;
}

TEST(Deadlock, OfTwoRanksBeginsWithTheOneThatLooks) {
  const transport::Stall start = wait(1, 2, {0});
  const auto cycle = find_deadlock(start, answers({{0, wait(0, 1, {1})}, {1, start}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(1, 0));
}

TEST(Deadlock, OfARingOfRanksIsFound) {
  constexpr int kRanks = 5;
  std::map<int, transport::Stall> waits;
  for (int rank = 0; rank < kRanks; ++rank) {
    waits.emplace(rank, wait(rank, static_cast<std::uint32_t>(rank), {(rank + 1) % kRanks}));
  }
  EXPECT_THAT(ranks_of(find_deadlock(waits.at(2), answers(waits))), ElementsAre(2, 3, 4, 0, 1));
}

TEST(Deadlock, IsFoundBesideRanksThatWaitForNothing) {
  const transport::Stall start = wait(0, 1, {3, 2, 1});
  const auto cycle =
      find_deadlock(start, answers({{0, start}, {1, wait(1, 2, {4, 0})}, {2, wait(2, 3, {3})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1));
}

TEST(Deadlock, IsTheShortestOfSeveral) {
  const transport::Stall start = wait(0, 1, {1, 2});
  const auto cycle =
      find_deadlock(start, answers({{0, start}, {1, wait(1, 2, {2})}, {2, wait(2, 3, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 2));
}

TEST(Deadlock, NeedsEveryRankInItToBeStuck) {
  const transport::Stall start = wait(0, 1, {1});
  EXPECT_FALSE(find_deadlock(start, answers({{0, start}})));
  EXPECT_FALSE(find_deadlock(start, answers({{1, wait(1, 2, {0})}})));
}

TEST(Deadlock, OfOthersIsNoneOfTheOneThatWaitsForThem) {
  const auto cycle =
      find_deadlock(wait(0, 1, {1}), answers({{1, wait(1, 2, {2})}, {2, wait(2, 3, {1})}}));
  EXPECT_FALSE(cycle);
}

// The thread of this rank that the cycle depends on waits in another operation than the thread that
// searches.
TEST(Deadlock, MustComeBackToTheWaitThatItBeganWith) {
  const auto cycle =
      find_deadlock(wait(0, 1, {1}), answers({{0, wait(0, 7, {5})}, {1, wait(1, 2, {0})}}));
  EXPECT_FALSE(cycle);
}

// For example, over a slow network.
TEST(Deadlock, IsNoneWhereAllAreInTheSameOperation) {
  const transport::Stall start = wait(0, 1, {1, 2});
  const auto cycle =
      find_deadlock(start, answers({{0, start}, {1, wait(1, 1, {2, 0})}, {2, wait(2, 1, {0, 1})}}));
  EXPECT_FALSE(cycle);
}

TEST(Deadlock, MayPassThroughRanksInTheSameOperation) {
  const transport::Stall start = wait(0, 1, {1});
  const auto cycle =
      find_deadlock(start, answers({{0, start}, {1, wait(1, 1, {2, 0})}, {2, wait(2, 2, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
}

// Each rank counts its own messages.
TEST(Deadlock, MayBeOfReceivesWithTheSameNumber) {
  transport::Stall start = wait(0, 0, {1});
  transport::Stall other = wait(1, 0, {0});
  start.id.is_message = other.id.is_message = true;
  EXPECT_THAT(ranks_of(find_deadlock(start, answers({{0, start}, {1, other}}))), ElementsAre(0, 1));
}

TEST(Deadlock, OfAReceiveFromAnyRankNeedsAllThatMaySend) {
  const transport::Stall start = receive_from_any(0, {1, 2});
  EXPECT_FALSE(find_deadlock(start, answers({{0, start}, {1, wait(1, 1, {0})}})));
  EXPECT_FALSE(
      find_deadlock(start, answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 1, {3})}})));
  const auto cycle =
      find_deadlock(start, answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 1, {0})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text,
            "rank 0 waits in recv for rank 1, which waits in barrier #1 of group 1 for rank 0; "
            "rank 0 waits in recv for rank 2, which waits in barrier #1 of group 1 for rank 0");
  EXPECT_EQ(cycle->gone, "");
  EXPECT_FALSE(find_deadlock(receive_from_any(0, {}), answers({})));
}

// Each receive may have expected a message from the rank that is gone.
TEST(Deadlock, MayBeOfReceivesFromAnyRank) {
  const transport::Stall start = receive_from_any(0, {1}, "rank 2");
  const transport::Stall other = receive_from_any(1, {0}, "rank 2");
  const auto cycle = find_deadlock(start, answers({{0, start}, {1, other}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text, "rank 0 waits in recv for rank 1, which waits in recv for rank 0");
  EXPECT_EQ(cycle->gone, "rank 2");
  const transport::Stall free = receive_from_any(1, {0, 2});
  EXPECT_FALSE(find_deadlock(start, answers({{0, start}, {1, free}})));
}

TEST(Deadlock, OfAReceiveFromAnyRankMayLeadToAnother) {
  const transport::Stall start = receive_from_any(0, {1, 2});
  const auto cycle = find_deadlock(
      start,
      answers({{0, start}, {1, wait(1, 1, {0})}, {2, wait(2, 2, {3})}, {3, wait(3, 3, {2})}}));
  EXPECT_THAT(ranks_of(cycle), ElementsAre(0, 1, 2));
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->text,
            "rank 0 waits in recv for rank 1, which waits in barrier #1 of group 1 for rank 0; "
            "rank 0 waits in recv for rank 2, which waits in barrier #1 of group 2");
}

TEST(Deadlock, TheSearchEndsWhereVeryManyRanksWait) {
  constexpr int kRanks = 1000;
  std::vector<int> all;
  std::map<int, transport::Stall> waits;
  for (int rank = 1; rank < kRanks; ++rank) {
    all.push_back(rank);
  }
  for (const int rank : all) {
    waits.emplace(rank, wait(rank, static_cast<std::uint32_t>(rank), all));
  }
  int n_questions = 0;
  EXPECT_FALSE(find_deadlock(wait(0, 0, all), answers(waits, &n_questions)));
  EXPECT_LE(n_questions, 64);
}

TEST(Deadlock, IsTheSameOnlyIfAllWaitsAre) {
  const std::vector<transport::Stall> seen{wait(0, 1, {1}), wait(1, 2, {0})};
  std::vector<transport::Stall> again = seen;
  EXPECT_TRUE(are_same(seen, again));
  again[1].id.sequence = 2;
  EXPECT_FALSE(are_same(seen, again));
  EXPECT_FALSE(are_same({}, seen));
}

TEST(Deadlock, HasTheSameWordsOnAllItsRanks) {
  const std::vector<transport::Stall> cycle{wait(2, 3, {0}), wait(0, 1, {1}), wait(1, 2, {2})};
  const std::vector<transport::Stall> turned{cycle[1], cycle[2], cycle[0]};
  EXPECT_EQ(
      describe_deadlock(cycle),
      "rank 0 waits in barrier #1 of group 1 for rank 1, which waits in barrier #1 of group 2 "
      "for rank 2, which waits in barrier #1 of group 3 for rank 0");
  EXPECT_EQ(describe_deadlock(turned), describe_deadlock(cycle));
}

}  // namespace
}  // namespace unisono::peers
