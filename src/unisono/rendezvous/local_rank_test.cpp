#include "unisono/rendezvous/local_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/testing/ranks.h"

#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string device_of(int local_rank, int n_gpus) {
  return describe(device_of_local_rank(local_rank, n_gpus));
}

TEST(LocalDevice, IsTheGpuOfTheRanksNumber) {
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(device_of(rank, 0), "cpu");
    EXPECT_EQ(device_of(rank, 8), "cuda:" + std::to_string(rank));
  }
  EXPECT_EQ(device_of(2, 2), "cuda:0");
  EXPECT_EQ(device_of(5, 2), "cuda:1");
}

TEST(LocalDevice, TheNumberIsTheUsersOrTheLaunchers) {
  EXPECT_EQ(own_local_rank(fake({})), std::nullopt);
  EXPECT_EQ(own_local_rank(fake({{"LOCAL_RANK", "3"}})), 3);
  const FakeVariables open_mpi{{"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  EXPECT_EQ(own_local_rank(fake(open_mpi)), 1);
  EXPECT_EQ(own_local_rank(fake(changed(open_mpi, {{"LOCAL_RANK", "0"}}))), 0);
}

TEST(LocalDevice, ANumberThatIsNoneIsNamedWithItsVariable) {
  for (const char* text : {"abc", "-1", "", "1.5", "99999999999"}) {
    EXPECT_THAT([&] { (void)own_local_rank(fake({{"LOCAL_RANK", text}})); },
                ThrowsMessage<Error>(HasSubstr("LOCAL_RANK=\"" + std::string(text) + "\"")));
  }
}

TEST(LocalDevice, RanksThatShareAGpuAreNamed) {
  EXPECT_EQ(describe_shared_gpus(8, 0), "");
  EXPECT_EQ(describe_shared_gpus(8, 8), "");
  EXPECT_THAT(describe_shared_gpus(3, 2), HasSubstr("local ranks 0 and 2 both use cuda:0: "));
  EXPECT_THAT(describe_shared_gpus(5, 2),
              AllOf(HasSubstr("local ranks 0, 2 and 4 all use cuda:0"),
                    HasSubstr("local ranks 1 and 3 both use cuda:1"),
                    HasSubstr("5 ranks for 2 GPUs")));
}

TEST(LocalDevice, WhereThatIsAnErrorItSaysWhatToDo) {
  const Device first{.type = DeviceType::kCuda, .index = 0};
  const Device second{.type = DeviceType::kCuda, .index = 1};
  EXPECT_EQ(explain_same_gpu({first, second}, 0), "");
  EXPECT_EQ(explain_same_gpu({Device{}, Device{}}, 0), "");
  EXPECT_THAT(explain_same_gpu({first, first, second}, 4),
              AllOf(HasSubstr("ranks 4 and 5 are both on cuda:0: "), HasSubstr("LOCAL_RANK")));
}

}  // namespace

namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Environment of a task of `srun -N2 --ntasks-per-node=2 -c 3`.
const FakeVariables kTask{{"SLURM_JOB_ID", "12"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_JOB_NODELIST", "gpu[05-07]"},
                          {"SLURM_STEP_NODELIST", "gpu[05-06]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                          {"SLURM_NTASKS_PER_NODE", "2"},
                          {"SLURM_CPUS_PER_TASK", "3"},
                          {"SLURM_CPUS_ON_NODE", "8"},
                          {"SLURM_STEP_GPUS", "0,2-3"}};

auto asking(const FakeVariables& variables) {
  return [variables] { (void)slurm_job(fake(variables)); };
}

TEST(SlurmJob, IsWhatSlurmSays) {
  const SlurmJob job = slurm_job(fake(kTask));
  EXPECT_THAT(job.hostnames, ElementsAre("gpu05", "gpu06"));
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.cpus_per_task, 3);
  EXPECT_EQ(job.ntasks_per_node, 2);
  EXPECT_THAT(job.tasks_of_nodes, ElementsAre(2, 2));
  EXPECT_THAT(job.gpu_ids, ElementsAre(0, 2, 3));
}

TEST(SlurmJob, RanksMeetAtTheFirstNodeUnlessVariablesSayOtherwise) {
  EXPECT_EQ(slurm_job(fake(kTask)).master_addr, "gpu05");
  EXPECT_EQ(slurm_job(fake(kTask)).master_port, 61012);
  const SlurmJob third = slurm_job(fake(changed(kTask, {{"SLURM_STEP_ID", "2"}})));
  EXPECT_EQ(
      third.master_port,
      find_launch_info(fake(changed(kTask, {{"SLURM_STEP_ID", "2"}, {"UNISONO_SECRET", "x"}})))
          .master_port)
      << "as all ranks of the step find it";
  const SlurmJob given =
      slurm_job(fake(changed(kTask, {{"MASTER_ADDR", "alpha"}, {"MASTER_PORT", "29501"}})));
  EXPECT_EQ(given.master_addr, "alpha");
  EXPECT_EQ(given.master_port, 29501);
}

// A step with fewer tasks than the job requested.
TEST(SlurmJob, WhatWasAskedForComesFirst) {
  EXPECT_EQ(slurm_job(fake(changed(kTask, {{"SLURM_NTASKS_PER_NODE", "4"}}))).ntasks_per_node, 4);
  EXPECT_EQ(slurm_job(fake(changed(kTask, {{"SLURM_NTASKS_PER_NODE", "4,3"}}))).ntasks_per_node, 3);
}

TEST(SlurmJob, WhatWasNotAskedForIsDerived) {
  const FakeVariables bare =
      without(without(kTask, "SLURM_NTASKS_PER_NODE"), "SLURM_CPUS_PER_TASK");
  EXPECT_EQ(slurm_job(fake(bare)).ntasks_per_node, 2);
  EXPECT_EQ(slurm_job(fake(bare)).cpus_per_task, 4);

  const FakeVariables uneven = changed(
      bare, {{"SLURM_NTASKS", "5"}, {"SLURM_STEP_TASKS_PER_NODE", "4,1"}, {"SLURM_PROCID", "4"}});
  EXPECT_EQ(slurm_job(fake(uneven)).ntasks_per_node, 1);
  EXPECT_EQ(slurm_job(fake(changed(uneven, {{"SLURM_NODEID", "0"}}))).ntasks_per_node, 4);
  EXPECT_EQ(slurm_job(fake(uneven)).cpus_per_task, 8);

  const FakeVariables least = without(uneven, "SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(slurm_job(fake(least)).ntasks_per_node, 3);
  EXPECT_THAT(slurm_job(fake(least)).tasks_of_nodes, IsEmpty());
  EXPECT_EQ(slurm_job(fake(without(least, "SLURM_CPUS_ON_NODE"))).cpus_per_task, 1);
  // More tasks than cores.
  EXPECT_EQ(slurm_job(fake(changed(least, {{"SLURM_CPUS_ON_NODE", "2"}}))).cpus_per_task, 1);
  EXPECT_THAT(slurm_job(fake(without(least, "SLURM_STEP_GPUS"))).gpu_ids, IsEmpty());
}

TEST(SlurmJob, ABatchScriptHasTheJobsNodes) {
  const SlurmJob job = slurm_job(fake({{"SLURM_JOB_ID", "12"},
                                       {"SLURM_PROCID", "0"},
                                       {"SLURM_NTASKS", "4"},
                                       {"SLURM_LOCALID", "0"},
                                       {"SLURM_NODEID", "0"},
                                       {"SLURM_JOB_NODELIST", "gpu[05-07]"},
                                       {"SLURM_TASKS_PER_NODE", "2,1(x2)"},
                                       {"SLURM_JOB_GPUS", "1"}}));
  EXPECT_THAT(job.hostnames, ElementsAre("gpu05", "gpu06", "gpu07"));
  EXPECT_THAT(job.tasks_of_nodes, ElementsAre(2, 1, 1));
  EXPECT_THAT(job.gpu_ids, ElementsAre(1));
}

TEST(SlurmJob, OneMessageNamesAllThatIsWrong) {
  constexpr ErrorCode kCode = ErrorCode::kInvalidArgument;
  EXPECT_THAT(asking({}),
              throws_error(kCode,
                           "SLURM_JOB_NODELIST is not set",
                           "SLURM_NTASKS is not set",
                           "SLURM_PROCID is not set",
                           "SLURM_LOCALID is not set",
                           "srun sets"));
  EXPECT_THAT(asking(changed(kTask,
                             {{"SLURM_NTASKS", "four"},
                              {"SLURM_STEP_NODELIST", "gpu[05"},
                              {"SLURM_STEP_TASKS_PER_NODE", "2(x"},
                              {"SLURM_CPUS_PER_TASK", "0"},
                              {"SLURM_STEP_GPUS", "a"}})),
              throws_error(kCode,
                           "SLURM_NTASKS=\"four\"",
                           "SLURM_STEP_NODELIST: node list \"gpu[05\"",
                           "SLURM_STEP_TASKS_PER_NODE=\"2(x\" is not a list",
                           "SLURM_CPUS_PER_TASK=\"0\"",
                           "SLURM_STEP_GPUS=\"a\""));
  EXPECT_THAT(asking(changed(kTask, {{"SLURM_PROCID", "4"}})),
              throws_error(kCode, "SLURM_PROCID=4 is not below SLURM_NTASKS=4"));
}

TEST(SlurmJob, CountsAreWrittenInShort) {
  const auto with_counts = [](const std::string& text) {
    return changed(kTask, {{"SLURM_STEP_TASKS_PER_NODE", text}});
  };
  const auto counts = [&](const std::string& text) {
    return slurm_job(fake(with_counts(text))).tasks_of_nodes;
  };
  EXPECT_THAT(counts("2"), ElementsAre(2));
  EXPECT_THAT(counts("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(counts("1,16(x3)"), ElementsAre(1, 16, 16, 16));
  for (const char* text : {"",
                           "x",
                           "0",
                           "-1",
                           "2(x",
                           "2(x)",
                           "2(x0)",
                           "2(3)",
                           "2,",
                           ",2",
                           "2 ",
                           "2(x2)3",
                           "99999999999",
                           "1(x65536),1",
                           "1(x2000000000)"}) {
    EXPECT_THAT(
        asking(with_counts(text)),
        throws_error(ErrorCode::kInvalidArgument,
                     "SLURM_STEP_TASKS_PER_NODE=\"" + std::string(text) + "\" is not a list"));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
