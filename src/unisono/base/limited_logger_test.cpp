#include "unisono/base/limited_logger.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"

namespace unisono {
namespace {

using std::chrono::seconds;

TEST(LimitedLogger, LeavesOutWhatIsTooMuchAndSaysSo) {
  const auto start = Deadline::Clock::now();
  LimitedLogger logger(Logger("test"), 2, seconds(10));
  ::testing::internal::CaptureStderr();
  for (int line = 1; line <= 5; ++line) {
    logger.warning("line " + std::to_string(line), start + seconds(line));
  }
  logger.warning("line 6", start + seconds(11));
  logger.warning("line 7", start + seconds(12));
  logger.warning("line 8", start + seconds(13));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono test] warning: line 1\n"
            "[unisono test] warning: line 2\n"
            "[unisono test] warning: left out 3 lines like this: line 6\n"
            "[unisono test] warning: line 7\n");
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
