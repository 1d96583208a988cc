#include "unisono/net/unauthenticated_connections.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace unisono::net {
namespace {

using std::chrono::milliseconds;

// The listener has two places.
constexpr milliseconds kSilentTime{2};

TEST(UnauthenticatedConnections, TheOldestGoesWhenItsTimeIsOver) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(7, start);
  EXPECT_FALSE(strangers.is_full());
  strangers.add(3, start + milliseconds(1));
  EXPECT_TRUE(strangers.is_full());
  EXPECT_EQ(strangers.overdue(start + kSilentTime - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kSilentTime), 7U);
  EXPECT_TRUE(strangers.remove(7));
  EXPECT_FALSE(strangers.remove(7));
  EXPECT_EQ(strangers.size(), 1U);
  EXPECT_EQ(strangers.overdue(start + kSilentTime), std::nullopt);
  EXPECT_EQ(strangers.next_due(), start + kSilentTime + milliseconds(1));
  EXPECT_EQ(strangers.overdue(start + kSilentTime + milliseconds(1)), 3U);
  EXPECT_TRUE(strangers.remove(3));
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime * 2), std::nullopt);
}

TEST(UnauthenticatedConnections, WhoHasSaidSomethingHasMoreTime) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(1, start);
  strangers.add(2, start + milliseconds(1));
  strangers.note_word(1);
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime - milliseconds(1)), 2U);
  EXPECT_TRUE(strangers.remove(2));
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kHandshakeTime), 1U);
  EXPECT_TRUE(strangers.remove(1));
  strangers.note_word(1);
  EXPECT_EQ(strangers.size(), 0U);
}

TEST(UnauthenticatedConnections, AThousandSilentOnesPassInASecond) {
  for (const std::size_t most : {16U, 32U, 256U}) {
    UnauthenticatedConnections strangers(most);
    UnauthenticatedConnections::Time now;
    for (std::uint64_t id = 0; id < 1000; ++id) {
      if (strangers.is_full()) {
        now = std::max(now, strangers.next_due());
        EXPECT_TRUE(strangers.remove(strangers.overdue(now).value()));
      }
      strangers.add(id, now);
    }
    EXPECT_LE(now, UnauthenticatedConnections::Time() + std::chrono::seconds(1)) << most;
  }
}

TEST(UnauthenticatedConnections, ThoseOfTheSameMomentAreKeptApart) {
  UnauthenticatedConnections strangers(2);
  const UnauthenticatedConnections::Time start;
  strangers.add(1, start);
  strangers.add(2, start);
  EXPECT_TRUE(strangers.remove(1));
  EXPECT_EQ(strangers.overdue(start + kSilentTime), 2U);
}

using std::chrono::seconds;

TEST(LimitedLogger, CountsWhatIsTooMuchAndSaysSo) {
  const auto start = Deadline::Clock::now();
  LimitedLogger logger(base::Logger("test"), 2, seconds(10));
  ::testing::internal::CaptureStderr();
  for (int line = 1; line <= 5; ++line) {
    logger.warning("line " + std::to_string(line), start + seconds(line));
  }
  for (int line = 6; line <= 9; ++line) {
    logger.warning("line " + std::to_string(line), start + seconds(line + 5));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono test] warning: line 1\n"
            "[unisono test] warning: line 2\n"
            "[unisono test] warning: and 3 more in the last 10 s, the last: line 5\n"
            "[unisono test] warning: line 6\n"
            "[unisono test] warning: line 7\n");
}

TEST(LimitedLogger, SaysWhatItHasCountedWhenItIsAsked) {
  const auto start = Deadline::Clock::now();
  LimitedLogger logger(base::Logger("test"), 1, seconds(10));
  ::testing::internal::CaptureStderr();
  logger.warning("line 1", start);
  EXPECT_EQ(logger.due(), std::nullopt);
  logger.catch_up(start + seconds(1));
  logger.warning("line 2", start + seconds(2));
  EXPECT_EQ(logger.due(), start + seconds(10));
  logger.catch_up(start + seconds(10));
  EXPECT_EQ(logger.due(), std::nullopt);
  logger.catch_up(start + seconds(11));
  logger.warning("line 3", start + seconds(12));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono test] warning: line 1\n"
            "[unisono test] warning: and 1 more in the last 10 s, the last: line 2\n"
            "[unisono test] warning: line 3\n");
}

TEST(LimitedLogger, LeavesNothingOutOfWhatComesSlowly) {
  const auto start = Deadline::Clock::now();
  LimitedLogger logger(base::Logger("test"), 1, seconds(10));
  ::testing::internal::CaptureStderr();
  logger.warning("line 1", start);
  logger.warning("line 2", start + seconds(10));
  logger.warning("line 3", start + seconds(30));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono test] warning: line 1\n"
            "[unisono test] warning: line 2\n"
            "[unisono test] warning: line 3\n");
}

}  // namespace
}  // namespace unisono::net
