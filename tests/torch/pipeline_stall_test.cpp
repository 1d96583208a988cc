// Pipelines with processes as ranks, one of which delays the others.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/launch_run.h"
#include "processes/job.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kGivenUp = 124;

TEST(StalledPipeline, ARankThatIsStoppedInAStepEndsTheJobAndIsNamed) {
  // The tensors for which the previous and the next rank wait.
  const std::string before = "gradients of chunk [0-3] from stage ";
  const std::string after = "outputs of chunk 2 from stage ";
  const std::vector<std::string> waits{
      after + "0 to stage 1", after + "1 to stage 2", before + "2 to stage 1"};
  for (int stopped = 0; stopped < 3; ++stopped) {
    const std::string rank = std::to_string(stopped);
    const launch_test::RunResult result = launch_test::run_to_end(
        {.arguments = {
             "run", "--stall-timeout", "2", "-n", "3", UNISONO_RANK_PROGRAM, rank, "stops"}});
    EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
    EXPECT_THAT(
        result.err,
        AllOf(ContainsRegex("rank " + rank +
                            " \\(pid [0-9]+\\) was aborted after [0-9.]+ s: others have waited "
                            "for it for [2-9]\\.[0-9] s \\(--stall-timeout\\), and its process is "
                            "stopped\n"),
              ContainsRegex("rank [0-2] in recv \\([^)]*from rank " + rank + ", tag [0-9]+\\) of " +
                            waits.at(static_cast<std::size_t>(stopped)) + " for [2-9]")));
  }
}

TEST(StalledPipeline, ARankThatComputesReportsNoneOfItsReceives) {
  const std::vector<test::ProcessResult> ranks =
      test::run_job({.world_size = 3,
                     .mode = {"0", "computes"},
                     .variables = {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_LOG", "info"}}});
  for (const test::ProcessResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.err;
  }
  EXPECT_THAT(ranks[0].err, Not(HasSubstr("waits since")));
  EXPECT_THAT(ranks[1].err,
              ContainsRegex("outputs of chunk 2 from stage 0 to stage 1.* waits since "
                            "[0-9.]+ s for rank 0 "));
  EXPECT_THAT(ranks[1].err, Not(HasSubstr("for rank 2 ")));
}

}  // namespace
}  // namespace unisono::testing
