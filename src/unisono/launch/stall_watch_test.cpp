#include "unisono/launch/stall_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/late_rank.h"

namespace unisono::launch {
namespace {

using std::chrono::seconds;
using Time = Deadline::Clock::time_point;

Time at(int time) {
  return Time(seconds(1000 + time));
}

LongWait wait_since(int since, int seen) {
  return {.since = at(since), .seen = at(seen), .operation = "barrier #1", .late = {1}};
}

// As a rank does it.
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

// As by Ctrl-Z, and with it all ranks.
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
