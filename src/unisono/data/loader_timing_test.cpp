#include "unisono/data/loader_timing.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/testing/ramp_dataset.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using data::testing::Ramp;
using ::testing::HasSubstr;

TEST(LoaderTiming, EachNumberOfWorkersIsTimed) {
  const std::vector<LoaderTiming> timings =
      time_loaders(std::make_shared<Ramp>(100),
                   {.batch_size = 7, .max_workers = 3, .duration = std::chrono::milliseconds(1)});
  ASSERT_EQ(timings.size(), 4U);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    EXPECT_EQ(timings[i].num_workers, static_cast<int>(i));
    EXPECT_GT(timings[i].samples_per_second, 0);
  }
}

TEST(LoaderTiming, TheBestAreTheFewestThatAreNearlyAsFastAsTheFastest) {
  const auto best = [](const std::vector<LoaderTiming>& timings) {
    return best_timing(timings).num_workers;
  };
  EXPECT_EQ(best({{0, 50}, {1, 96}, {2, 100}, {3, 99}}), 1);
  EXPECT_EQ(best({{0, 50}, {1, 94}, {2, 100}, {3, 120}}), 3);
  EXPECT_EQ(best({{0, 100}, {1, 60}}), 0);
  EXPECT_EQ(best({{0, 1}}), 0);
}

TEST(LoaderTiming, ExplainsImpossibleArguments) {
  const CaughtError error = error_of([] { (void)time_loaders(std::make_shared<Ramp>(0)); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("0 samples"));
  EXPECT_THAT(error_of([] { (void)time_loaders(nullptr); }).message, HasSubstr("0 samples"));
  EXPECT_THAT(
      error_of([] { (void)time_loaders(std::make_shared<Ramp>(1), {.max_workers = -1}); }).message,
      HasSubstr("up to -1 workers"));
}

}  // namespace
}  // namespace unisono
