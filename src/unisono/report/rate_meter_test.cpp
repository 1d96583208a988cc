#include "unisono/report/rate_meter.h"

#include <chrono>

#include <gtest/gtest.h>

namespace unisono::report {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RateMeter, KnowsNothingBeforeTheFirstStep) {
  const RateMeter::Time start{};
  EXPECT_EQ(RateMeter(start).rates(start).steps_per_second, 0);
  EXPECT_EQ(RateMeter(start).rates(start + seconds(1)).steps_per_second, 0);
}

TEST(RateMeter, CountsFromTheStart) {
  const RateMeter::Time start{};
  RateMeter meter(start);
  for (int step = 1; step <= 10; ++step) {
    meter.note(start + milliseconds(500) * step, step, 64 * step);
  }
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(5)).steps_per_second, 2);
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(5)).samples_per_second, 128);
  EXPECT_DOUBLE_EQ(meter.rates(start + seconds(10)).steps_per_second, 1);
}

// A training that has become faster says so before it is over.
TEST(RateMeter, ForgetsWhatIsLongAgo) {
  const RateMeter::Time start{};
  RateMeter meter(start);
  for (int step = 1; step <= 100; ++step) {
    meter.note(start + seconds(10) * step, step, 0);
  }
  EXPECT_NEAR(meter.rates(start + seconds(1000)).steps_per_second, 0.1, 1e-9);
  for (int step = 1; step <= 400; ++step) {
    meter.note(start + seconds(1000) + milliseconds(100) * step, 100 + step, 0);
  }
  EXPECT_NEAR(meter.rates(start + seconds(1040)).steps_per_second, 10, 0.01);
}

}  // namespace
}  // namespace unisono::report
