#include "unisono/base/limited_logger.h"

#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"

namespace unisono {
namespace {

using std::chrono::seconds;

TEST(LimitedLogger, CountsWhatIsTooMuchAndSaysSo) {
  const auto start = Deadline::Clock::now();
  LimitedLogger logger(Logger("test"), 2, seconds(10));
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
  LimitedLogger logger(Logger("test"), 1, seconds(10));
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
  LimitedLogger logger(Logger("test"), 1, seconds(10));
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
}  // namespace unisono
