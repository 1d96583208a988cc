#include "unisono/launch/stall_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <gtest/gtest.h>

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
  const std::optional<LateRankWaits> late = find_late_rank(waits, kLimit, at(now));
  return late ? std::optional(late->rank) : std::nullopt;
}

TEST(LateRank, IsWhoIsWaitedForAsLongAsTheLimit) {
  const std::vector<RankWait> waits{wait_of(0, {1}, 0), wait_of(2, {1}, 5)};
  EXPECT_EQ(late_rank(waits, 29), std::nullopt);
  const std::optional<LateRankWaits> late = find_late_rank(waits, kLimit, at(30));
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

// Rank 0 waits for rank 1, which waits for rank 2, which waits for rank 3.
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

namespace {

using std::chrono::seconds;
using Time = Deadline::Clock::time_point;

LongWait wait_since(int since, int seen) {
  return {.since = at(since), .seen = at(seen), .operation = "barrier #1", .late = {1}};
}

// Writes a record as a rank does.
void write_record(const std::string& path, const WaitRecord& record) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(file.is_open()) << path;
  const std::vector<std::byte> bytes = checked(encode(record));
  ASSERT_EQ(::pwrite(file.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
}

TEST(PresentWaits, AreThoseThatTheRankStillLooksAfter) {
  const std::vector<LongWait> waits{wait_since(0, 99), wait_since(0, 90), wait_since(0, 91)};
  EXPECT_EQ(present_waits(0, waits, at(-5), at(100)).size(), 2U);
}

TEST(PresentWaits, BeginNotBeforeAllOfThemCount) {
  const auto waits = present_waits(3, std::vector<LongWait>{wait_since(0, 99)}, at(50), at(100));
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits.front(),
            (RankWait{.rank = 3, .since = at(50), .operation = "barrier #1", .late = {1}}));
}

TEST(StallWatch, SeesWhatRanksWriteAndWhatIsNew) {
  StallWatch watch(4, 2);
  watch.look(at(0));
  EXPECT_TRUE(watch.waits().empty());
  EXPECT_TRUE(watch.take_changed().empty());
  write_record(watch.path(1), {.pid = 17, .waits = {wait_since(-3, 1)}});
  watch.look(at(1));
  EXPECT_EQ(watch.take_changed(), std::vector<std::size_t>{1});
  ASSERT_EQ(watch.waits().size(), 1U);
  EXPECT_EQ(watch.waits().front().rank, 5);
  EXPECT_EQ(watch.waits().front().since, at(-3));
  EXPECT_EQ(watch.pid(1), 17);
  EXPECT_FALSE(watch.pid(0).has_value());
  write_record(watch.path(1), {.pid = 17, .waits = {wait_since(-3, 2)}});
  watch.look(at(2));
  EXPECT_TRUE(watch.take_changed().empty()) << "it goes on";
  write_record(watch.path(1), {.pid = 17, .waits = {}});
  watch.look(at(3));
  EXPECT_EQ(watch.take_changed(), std::vector<std::size_t>{1});
  EXPECT_TRUE(watch.waits().empty());
}

TEST(StallWatch, KeepsWhatItHasSeenWhileTheRankWrites) {
  StallWatch watch(0, 1);
  write_record(watch.path(0), {.pid = 17, .waits = {wait_since(0, 1)}});
  watch.look(at(1));
  const Fd file(::open(watch.path(0).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::pwrite(file.get(), "half", 4, 0), 4);
  watch.look(at(2));
  EXPECT_EQ(watch.waits().size(), 1U);
}

// Ctrl-Z stops the launcher together with all ranks.
TEST(StallWatch, AfterItWasStoppedAllWaitsBeginAnew) {
  StallWatch watch(0, 1);
  write_record(watch.path(0), {.pid = 17, .waits = {wait_since(0, 9)}});
  watch.look(at(9));
  EXPECT_EQ(watch.waits().front().since, at(0));
  write_record(watch.path(0), {.pid = 17, .waits = {wait_since(0, 99)}});
  watch.look(at(99));
  ASSERT_EQ(watch.waits().size(), 1U);
  EXPECT_EQ(watch.waits().front().since, at(99));
  write_record(watch.path(0), {.pid = 17, .waits = {wait_since(0, 100)}});
  watch.look(at(100));
  EXPECT_EQ(watch.waits().front().since, at(99));
}

TEST(StallWatch, ItsFilesKeepTheirSize) {
  const StallWatch watch(0, 1);
  EXPECT_NE(::truncate(watch.path(0).c_str(), 0), 0);
}

}  // namespace
}  // namespace unisono::launch
