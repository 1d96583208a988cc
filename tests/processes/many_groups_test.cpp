// Jobs with far more groups than files that a rank may open.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::ContainsRegex;

const std::vector<std::string> kManyGroups{"many", "200", "60"};

TEST(ManyGroups, NeedNoFilesOnOneNode) {
  for (const ProcessResult& result : run_job({.world_size = 2, .mode = kManyGroups})) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "200 groups\n");
  }
}

TEST(ManyGroups, SayBetweenNodesWhichTheLimitOfFilesForbids) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = 2, .mode = kManyGroups, .nodes = {"a", "b"}});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(
        results[rank].err,
        ContainsRegex("rank " + std::to_string(rank) +
                      " can't make group 0[.][0-9]+: creating an eventfd: Too many open files "
                      "\\(errno 24\\); raise the limit of open files, which is [0-9]+ "
                      "\\(ulimit -n\\)"));
  }
}

// Error of a group's first operation on two nodes when rank 0 can open no file for rank 1.
class ConnectionWithoutFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(ConnectionWithoutFiles, IsAnErrorOnBothSides) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = 2, .mode = {GetParam()}, .nodes = {"a", "b"}});
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                ContainsRegex("can't keep the connection of rank 1 .*Too many open files.*raise "
                              "the limit of open files, which is [0-9]+"));
  }
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         ConnectionWithoutFiles,
                         ::testing::Values("barrier", "message"),
                         [](const auto& operation) { return std::string(operation.param); });

}  // namespace
}  // namespace unisono::test
