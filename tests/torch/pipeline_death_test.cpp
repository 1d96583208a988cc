// Pipelines with processes as ranks, one of which is killed.

#include <signal.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kWorldSize = 3;

TEST(PipelineProcesses, ComeToTheEndOfAStep) {
  for (const test::ProcessResult& rank : test::run_job({.world_size = kWorldSize, .mode = {}})) {
    EXPECT_EQ(rank.exit_code, 0) << rank.err;
    EXPECT_EQ(rank.out, "done\n");
  }
}

struct Killed {
  std::string schedule;
  int n_ranks;
  int n_replicas = 1;
};

class KilledRank : public ::testing::TestWithParam<Killed> {};

TEST_P(KilledRank, IsNamedByAllOthersAtOnceWithItsStageAndWhatTheyWaitedFor) {
  const auto& [schedule, n_ranks, n_replicas] = GetParam();
  for (int dying = 0; dying < n_ranks; ++dying) {
    const std::string name = "rank " + std::to_string(dying);
    const std::string stage = "stage " + std::to_string(dying % (n_ranks / n_replicas));
    const std::vector<test::ProcessResult> ranks = test::run_job(
        {.world_size = n_ranks,
         .mode = {std::to_string(dying), "dies", schedule, std::to_string(n_replicas)}});
    for (int rank = 0; rank < n_ranks; ++rank) {
      const test::ProcessResult& result = ranks.at(static_cast<std::size_t>(rank));
      if (rank == dying) {
        EXPECT_EQ(result.exit_code, 128 + SIGKILL);
        continue;
      }
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr(name + " (pid "),
                        HasSubstr(" (" + name + " had " + stage + " of the pipeline)"),
                        ContainsRegex("of (outputs|gradients) of (chunk [0-9]+ from )?stage")))
          << schedule << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SchedulesAndReplicas,
                         KilledRank,
                         ::testing::Values(Killed{.schedule = "1f1b", .n_ranks = 3},
                                           Killed{.schedule = "zb_h1", .n_ranks = 3},
                                           Killed{
                                               .schedule = "1f1b", .n_ranks = 4, .n_replicas = 2}),
                         [](const auto& test) {
                           return test.param.schedule + "_of_" + std::to_string(test.param.n_ranks);
                         });

}  // namespace
}  // namespace unisono::testing
