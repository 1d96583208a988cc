#include "unisono/launch/environment.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/wait_record.h"

namespace unisono::launch {
namespace {

TEST(WorkerEnvironment, IsTheGoldenTable) {
  const JobLayout job{.master_addr = "10.0.0.1",
                      .master_port = 29500,
                      .node_rank = 1,
                      .n_nodes = 3,
                      .first_rank = 4,
                      .local_world_size = 2,
                      .world_size = 8,
                      .run_id = "job7",
                      .restart_count = 2,
                      .max_restarts = 5,
                      .secret = "c0ffee",
                      .omp_threads = 6};
  const std::vector<std::string> golden{"MASTER_ADDR=10.0.0.1",
                                        "MASTER_PORT=29500",
                                        "RANK=5",
                                        "WORLD_SIZE=8",
                                        "LOCAL_RANK=1",
                                        "LOCAL_WORLD_SIZE=2",
                                        "GROUP_RANK=1",
                                        "GROUP_WORLD_SIZE=3",
                                        "ROLE_RANK=5",
                                        "ROLE_NAME=default",
                                        "ROLE_WORLD_SIZE=8",
                                        "TORCHELASTIC_RUN_ID=job7",
                                        "TORCHELASTIC_RESTART_COUNT=2",
                                        "TORCHELASTIC_MAX_RESTARTS=5",
                                        "TORCHELASTIC_USE_AGENT_STORE=True",
                                        "UNISONO_SECRET=c0ffee",
                                        "OMP_NUM_THREADS=6"};
  EXPECT_EQ(worker_environment(job, 1), golden);
}

TEST(WorkerEnvironment, NamesAFolderOfTheRanksOwnWhereThereIsOne) {
  JobLayout job;
  job.first_rank = 4;
  job.rank_dir = "/runs";
  EXPECT_THAT(worker_environment(job, 1), ::testing::Contains("UNISONO_RANK_DIR=/runs/rank-5"));
  job.rank_dir.clear();
  EXPECT_THAT(worker_environment(job, 1),
              ::testing::Not(::testing::Contains(::testing::StartsWith("UNISONO_RANK_DIR"))));
}

TEST(WorkerEnvironment, HasNoWaitFileOfAnotherLauncher) {
  const Environment outer = [](const char* name) {
    return std::string(name) == kWaitFileVariable ? std::optional<std::string>("/proc/1/fd/7")
                                                  : std::nullopt;
  };
  EXPECT_THAT(worker_environment(make_node_layout(1, outer), 0),
              ::testing::Contains("UNISONO_WAIT_FILE="));
}

TEST(WorkerEnvironment, SaysHowSoonWaitsAreReported) {
  JobLayout job;
  job.stall_interval = std::chrono::milliseconds(2500);
  EXPECT_THAT(worker_environment(job, 0), ::testing::Contains("UNISONO_STALL_SECONDS=2.5"));
}

TEST(WorkerEnvironment, HasADebugLogWhereThatIsAskedFor) {
  JobLayout job;
  job.log_debug = true;
  EXPECT_THAT(worker_environment(job, 0), ::testing::Contains("UNISONO_LOG=debug"));
}

TEST(WorkerEnvironment, HasAnAliasWithThePathThatItTakes) {
  JobLayout job;
  job.backend_alias = "gloo=unisono";
  job.python_path = "/package/_startup:/mine";
  EXPECT_THAT(worker_environment(job, 0),
              ::testing::IsSupersetOf(
                  {"UNISONO_BACKEND_ALIAS=gloo=unisono", "PYTHONPATH=/package/_startup:/mine"}));
}

TEST(WorkerEnvironment, LeavesSecretAndThreadsOfTheUserAlone) {
  for (const std::string& entry : worker_environment(JobLayout{}, 0)) {
    EXPECT_THAT(entry, ::testing::Not(::testing::StartsWith("UNISONO_SECRET")));
    EXPECT_THAT(entry, ::testing::Not(::testing::StartsWith("OMP_NUM_THREADS")));
    EXPECT_THAT(entry, ::testing::Not(::testing::StartsWith("UNISONO_LOG")));
    EXPECT_THAT(entry, ::testing::Not(::testing::StartsWith("UNISONO_BACKEND_ALIAS")));
    EXPECT_THAT(entry, ::testing::Not(::testing::StartsWith("PYTHONPATH")));
  }
}

TEST(MergeEnvironment, OverridesReplaceAndTheRestKeepsItsOrder) {
  const std::array<const char*, 6> base{"B=1", "RANK=9", "A=x=y", "odd", "RANKS=3", nullptr};
  EXPECT_EQ(merge_environment(base.data(), {"RANK=0", "NEW="}),
            (std::vector<std::string>{"B=1", "A=x=y", "odd", "RANKS=3", "RANK=0", "NEW="}));
}

}  // namespace
}  // namespace unisono::launch
