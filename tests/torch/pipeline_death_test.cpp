// Pipelines whose ranks are processes, of which one is killed.

#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/job.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kWorldSize = 3;

TEST(PipelineProcesses, ComeToTheEndOfAStep) {
  for (const test::ProcessResult& rank : test::run_job({.world_size = kWorldSize, .mode = {}})) {
    EXPECT_EQ(rank.exit_code, 0) << rank.err;
    EXPECT_EQ(rank.out, "done\n");
  }
}

TEST(PipelineProcesses, ARankThatIsKilledInAStepIsNamedByAllOthersAtOnce) {
  for (int dying = 0; dying < kWorldSize; ++dying) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<test::ProcessResult> ranks =
        test::run_job({.world_size = kWorldSize, .mode = {std::to_string(dying), "dies"}});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const test::ProcessResult& result = ranks.at(static_cast<std::size_t>(rank));
      if (rank == dying) {
        EXPECT_EQ(result.exit_code, 128 + SIGKILL);
      } else {
        EXPECT_EQ(result.exit_code, 1);
        EXPECT_THAT(result.err, HasSubstr("rank " + std::to_string(dying) + " (pid "));
      }
    }
  }
}

}  // namespace
}  // namespace unisono::testing
