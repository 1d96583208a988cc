#include "unisono/base/deadline.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Deadline, ZeroHasPassedAtOnceAndPollsWithoutWaiting) {
  const Deadline deadline = Deadline::after(nanoseconds::zero());
  EXPECT_TRUE(deadline.has_passed());
  EXPECT_EQ(deadline.remaining(), nanoseconds::zero());
  EXPECT_EQ(deadline.poll_timeout_ms(), 0);
}

TEST(Deadline, NeverDoesNotPassAndPollsForever) {
  EXPECT_FALSE(Deadline::never().has_passed());
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
}

TEST(Deadline, HugeTimeoutsDoNotOverflow) {
  EXPECT_TRUE(Deadline::after(nanoseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(milliseconds::max()).is_never());
  EXPECT_TRUE(Deadline::after(hours::max()).is_never());
}

TEST(Deadline, PollTimeoutRoundsUpSoThatAPollDoesNotReturnEarly) {
  const Deadline deadline = Deadline::after(milliseconds(50));
  EXPECT_GT(deadline.poll_timeout_ms(), 0);
  EXPECT_LE(deadline.poll_timeout_ms(), 50);
}

TEST(Deadline, EarlierPicksTheFirst) {
  const Deadline soon = Deadline::after(milliseconds(1));
  const Deadline late = Deadline::after(hours(1));
  EXPECT_EQ(earlier(soon, late).time(), soon.time());
  EXPECT_EQ(earlier(Deadline::never(), late).time(), late.time());
}

TEST(TimeLimit, BeginsWhenItIsFirstAskedFor) {
  TimeLimit limit(hours(1));
  const Deadline::Clock::time_point before = Deadline::Clock::now();
  const Deadline deadline = limit.deadline();
  EXPECT_GE(deadline.time(), before + hours(1));
  EXPECT_EQ(limit.deadline().time(), deadline.time());
}

TEST(TimeLimit, CopiesOfOneThatHasBegunEndWithIt) {
  TimeLimit limit(hours(1));
  const Deadline deadline = limit.deadline();
  TimeLimit copy = limit;
  EXPECT_EQ(copy.deadline().time(), deadline.time());
}

}  // namespace
}  // namespace unisono
