#include "unisono/launch/late_rank.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

namespace unisono::launch {
namespace {

using std::chrono::seconds;
using Time = Deadline::Clock::time_point;

constexpr std::chrono::milliseconds kLimit = seconds(30);

Time at(int time) {
  return Time(seconds(1000 + time));
}

RankWait wait_of(int rank, std::vector<int> late, int since) {
  return {.rank = rank, .since = at(since), .operation = "barrier #1", .late = std::move(late)};
}

std::optional<int> late_rank(const std::vector<RankWait>& waits, int now) {
  const std::optional<LateRank> late = find_late_rank(waits, kLimit, at(now));
  return late ? std::optional(late->rank) : std::nullopt;
}

TEST(LateRank, IsWhoIsWaitedForAsLongAsTheLimit) {
  const std::vector<RankWait> waits{wait_of(0, {1}, 0), wait_of(2, {1}, 5)};
  EXPECT_EQ(late_rank(waits, 29), std::nullopt);
  const std::optional<LateRank> late = find_late_rank(waits, kLimit, at(30));
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->rank, 1);
  EXPECT_EQ(late->since, at(0));
  EXPECT_EQ(late->waits, waits);
  EXPECT_EQ(late_rank({}, 30), std::nullopt);
}

TEST(LateRank, OfSeveralIsTheOneThatIsWaitedForLongest) {
  EXPECT_EQ(late_rank({wait_of(0, {1}, 5), wait_of(0, {2}, 0)}, 60), 2);
  EXPECT_EQ(late_rank({wait_of(0, {3, 2}, 0)}, 60), 2) << "of equal ones the first";
  EXPECT_EQ(late_rank({wait_of(0, {1}, 5), wait_of(4, {1}, 0), wait_of(0, {2}, 3)}, 60), 1);
}

TEST(LateRank, IsNoneThatWaitsForOthersItself) {
  EXPECT_EQ(late_rank({wait_of(0, {1, 2}, 0), wait_of(1, {2}, 0)}, 60), 2);
  EXPECT_EQ(late_rank({wait_of(0, {1, 2}, 0), wait_of(1, {2}, 59)}, 60), 2)
      << "however short its wait is";
}

// 0 waits for 1, which waits for 2, which waits for 3.
TEST(LateRank, AtTheEndOfAChainCountsWhenItHasBeenWaitedForAsLong) {
  const std::vector<RankWait> waits{wait_of(0, {1}, 0), wait_of(1, {2}, 10), wait_of(2, {3}, 40)};
  EXPECT_EQ(late_rank(waits, 60), std::nullopt);
  EXPECT_EQ(late_rank(waits, 70), 3);
}

TEST(LateRank, IsNoneInACircle) {
  EXPECT_EQ(late_rank({wait_of(0, {1}, 0), wait_of(1, {0}, 0)}, 60), std::nullopt);
  EXPECT_EQ(late_rank({wait_of(0, {1, 2}, 0), wait_of(1, {0}, 0)}, 60), 2)
      << "but one that both would need is";
}

TEST(LateRank, MayWaitForAnyRank) {
  EXPECT_EQ(late_rank({wait_of(0, {1}, 0), wait_of(1, {}, 0)}, 60), 1);
  EXPECT_EQ(late_rank({wait_of(1, {}, 0)}, 60), std::nullopt) << "which is nobody's fault";
}

TEST(LateRank, ComesNextWhenTheNextWaitIsAsOldAsTheLimit) {
  const std::vector<RankWait> waits{
      wait_of(0, {1}, 0), wait_of(1, {2}, 10), wait_of(2, {}, 5), wait_of(3, {2}, 20)};
  EXPECT_EQ(next_late_rank(waits, kLimit, at(20)).time(), at(30));
  EXPECT_EQ(next_late_rank(waits, kLimit, at(30)).time(), at(40));
  EXPECT_EQ(next_late_rank(waits, kLimit, at(40)).time(), at(50));
  EXPECT_TRUE(next_late_rank(waits, kLimit, at(50)).is_never());
  EXPECT_TRUE(next_late_rank({}, kLimit, at(0)).is_never());
}

TEST(LateRank, IsDescribedByTheOperationsThatWaitForIt) {
  std::vector<RankWait> waits;
  for (const int rank : {0, 2, 3, 4}) {
    waits.push_back(wait_of(rank, {1}, rank));
  }
  waits.push_back(
      {.rank = 6, .since = at(1), .operation = "recv (f32[4], from rank 1)", .late = {1}});
  waits.push_back(wait_of(1, {}, 0));
  EXPECT_EQ(describe_waits(find_late_rank(waits, kLimit, at(60)).value(), at(60)),
            "ranks 0, 2-4 in barrier #1 for 60.0 s\n"
            "rank 6 in recv (f32[4], from rank 1) for 59.0 s");
  for (int rank = 10; rank < 20; ++rank) {
    waits.push_back(wait_of(rank, {1}, 2));
    waits.back().operation += std::to_string(rank);
  }
  EXPECT_TRUE(describe_waits(find_late_rank(waits, kLimit, at(60)).value(), at(60))
                  .ends_with("\nand in 7 other operations"));
}

}  // namespace
}  // namespace unisono::launch
