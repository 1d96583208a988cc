#include <unistd.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/net/loopback.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/testing/launched_ranks.h"
#include "unisono/rendezvous/testing/two_rank_job.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LaunchedInfo, OfSlurm) {
  const LaunchInfo found = find_launch_info(fake(kSlurm));
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_addr, "node003");
  EXPECT_EQ(found.master_port, 61004);
  EXPECT_FALSE(found.is_on_one_node);
  EXPECT_EQ(found.launcher, "Slurm");
  EXPECT_EQ(found.origin,
            "Slurm (SLURM_STEP_NODELIST, SLURM_NTASKS, SLURM_PROCID, SLURM_JOB_ID, SLURM_LOCALID)");
}

// Who has numbered the ranks himself may have made one job of several steps.
TEST(LaunchedInfo, TheJobIsTheLaunchersWhereTheRanksAre) {
  const FakeVariables step = changed(kSlurm, {{"SLURM_STEP_ID", "3"}});
  const std::string job = "SLURM_JOB_ID=4540, SLURM_STEP_ID=3";
  EXPECT_EQ(find_launch_info(fake(step)).job, job);
  const FakeVariables with_place = changed(step, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(find_launch_info(fake(with_place)).job, job);
  EXPECT_EQ(find_launch_info(fake(changed(with_place, {{"WORLD_SIZE", "8"}}))).job, job);
  EXPECT_EQ(find_launch_info(fake(changed(step, {{"RANK", "1"}}))).job, "");
  EXPECT_EQ(find_launch_info(fake(step), 1).job, "");
  const FakeVariables all_given = changed(with_place, {{"WORLD_SIZE", "9"}, {"RANK", "8"}});
  EXPECT_EQ(find_launch_info(fake(all_given)).job, "");
}

TEST(LaunchedInfo, WhatTheUsersVariablesToldIsKnown) {
  const auto told = [](const FakeVariables& variables, int rank = -1) {
    const FromVariables from = find_launch_info(fake(variables), rank).from_variables;
    return std::tuple(from.rank, from.world_size, from.address);
  };
  EXPECT_EQ(told(kSlurm), std::tuple(false, false, false));
  EXPECT_EQ(told(changed(kSlurm, {{"RANK", "1"}})), std::tuple(true, false, false));
  EXPECT_EQ(told(changed(kSlurm, {{"RANK", "1"}}), 2), std::tuple(false, false, false));
  EXPECT_EQ(told(changed(kSlurm, {{"WORLD_SIZE", "8"}})), std::tuple(false, true, false));
  EXPECT_EQ(told(changed(kSlurm, {{"MASTER_ADDR", "alpha"}})), std::tuple(false, false, true));
  EXPECT_EQ(told(changed(kSlurm, {{"MASTER_PORT", "29700"}})), std::tuple(false, false, false));
  EXPECT_EQ(told({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "alpha"}}),
            std::tuple(true, true, true));
}

TEST(LaunchedInfo, TasksOfOneNodeMeetOnItsLoopback) {
  const LaunchInfo found =
      find_launch_info(fake(changed(kSlurm, {{"SLURM_STEP_NODELIST", "node7"}})));
  EXPECT_EQ(found.master_addr, "node7");
  EXPECT_TRUE(found.is_on_one_node);
}

TEST(LaunchedInfo, StepsOfASlurmJobMeetAtDifferentPorts) {
  std::map<int, std::string> ports;
  for (int job = 7; job < 9; ++job) {
    for (int step = 0; step < 20; ++step) {
      const LaunchInfo found = find_launch_info(fake(changed(
          kSlurm,
          {{"SLURM_JOB_ID", std::to_string(job)}, {"SLURM_STEP_ID", std::to_string(step)}})));
      const std::string name = std::to_string(job) + "." + std::to_string(step);
      EXPECT_TRUE(ports.insert({found.master_port, name}).second)
          << name << " and " << ports[found.master_port];
    }
  }
  EXPECT_EQ(ports[61007], "7.0");
  EXPECT_EQ(ports[61008], "8.0");
  // Others in a container of PyTorch take the port of the job.
  EXPECT_EQ(
      find_launch_info(fake(changed(kSlurm, {{"SLURM_STEP_ID", "3"}, {"PYTORCH_VERSION", "2"}})))
          .master_port,
      61004);
}

TEST(LaunchedInfo, OfOpenMpi) {
  const LaunchInfo found = find_launch_info(fake(kOpenMpiOnOneNode));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_TRUE(found.is_on_one_node);
  EXPECT_EQ(found.launcher, "Open MPI");
  EXPECT_GE(found.master_port, 61000);
  // The same for all ranks of a job, another one for another job.
  const Environment other = fake(changed(kOpenMpiOnOneNode, {{"OMPI_COMM_WORLD_RANK", "2"}}));
  EXPECT_EQ(find_launch_info(other).master_port, found.master_port);
  const Environment next = fake(changed(kOpenMpiOnOneNode, {{"PMIX_NAMESPACE", "393740290"}}));
  EXPECT_NE(find_launch_info(next).master_port, found.master_port);
}

TEST(LaunchedInfo, OfMpichAndIntelMpi) {
  const LaunchInfo found = find_launch_info(fake(kHydra));
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_EQ(found.launcher, "MPICH or Intel MPI");
  EXPECT_EQ(found.origin,
            "MPICH or Intel MPI (PMI_SIZE, MPI_LOCALNRANKS, PMI_RANK, MPI_LOCALRANKID)");
  // No variable names the job; the process that started the ranks does.
  EXPECT_EQ(found.master_port, 61000 + ::getppid() % 4536);
  // Intel MPI's has a name.
  const FakeVariables intel = changed(kHydra, {{"I_MPI_HYDRA_UUID", "1e2f0000-d887-3005"}});
  const FakeVariables next = changed(kHydra, {{"I_MPI_HYDRA_UUID", "1e2f0001-d887-3005"}});
  EXPECT_NE(find_launch_info(fake(intel)).master_port, find_launch_info(fake(next)).master_port);
}

TEST(LaunchedInfo, WhoNamedThePlaceIsKnown) {
  const auto source_of = [](const FakeVariables& variables) {
    return find_launch_info(fake(variables)).place_source;
  };
  EXPECT_EQ(source_of(kSlurm), "from the variables of Slurm");
  EXPECT_EQ(source_of(kOpenMpiOnOneNode), "from the variables of Open MPI");
  EXPECT_EQ(source_of(kOpenMpiOnNodes), "told by rank 0 in the launcher's key space");
  // Messages name these variables themselves.
  EXPECT_EQ(source_of(changed(kSlurm, {{"MASTER_ADDR", "alpha"}})), "");
  EXPECT_EQ(source_of(changed(kSlurm, {{"MASTER_PORT", "29700"}})), "");
}

TEST(LaunchedInfo, MpirunOnSeveralNodesNeedsAPlaceWithoutAKeySpace) {
  for (const FakeVariables& variables : {without(kOpenMpiOnNodes, "PMIX_NAMESPACE"),
                                         changed(kHydra, kTwoOfANode),
                                         without(kHydra, "MPI_LOCALNRANKS")}) {
    EXPECT_THAT(message_of(variables),
                AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("name of rank 0's node")));
    const LaunchInfo found = find_launch_info(fake(changed(variables, {{"MASTER_ADDR", "alpha"}})));
    EXPECT_EQ(found.master_addr, "alpha");
    EXPECT_FALSE(found.is_on_one_node);
    // In a Slurm job its first node.
    const LaunchInfo job = find_launch_info(
        fake(changed(variables, {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
    EXPECT_EQ(job.master_addr, "n3");
    EXPECT_FALSE(job.is_on_one_node);
  }
  const LaunchInfo hydra =
      find_launch_info(fake(changed(changed(kHydra, kTwoOfANode), {{"MASTER_ADDR", "alpha"}})));
  EXPECT_EQ(hydra.master_port, 29500);
  const LaunchInfo job = find_launch_info(fake(changed(
      changed(kHydra, kTwoOfANode), {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
  EXPECT_EQ(job.master_port, 61009);
}

TEST(LaunchedInfo, RankZeroTellsThePlaceInTheKeySpaceOfMpirun) {
  for (const auto& [variables, kind] : {std::pair(kOpenMpiOnNodes, KeyValueSpaceKind::kPmix),
                                        std::pair(kHydraOnNodes, KeyValueSpaceKind::kPmi)}) {
    const LaunchInfo found = find_launch_info(fake(variables));
    EXPECT_EQ(found.key_value_space.kind, kind);
    EXPECT_EQ(found.master_addr, "");
    EXPECT_EQ(found.master_port, 0);
    EXPECT_FALSE(found.is_on_one_node);
    EXPECT_EQ(find_launch_info(fake(changed(variables, {{"MASTER_PORT", "29700"}}))).master_port,
              29700);
    const LaunchInfo given = find_launch_info(fake(changed(variables, {{"MASTER_ADDR", "alpha"}})));
    EXPECT_EQ(given.master_addr, "alpha");
    EXPECT_EQ(given.key_value_space.kind, kind);
    const LaunchInfo job = find_launch_info(
        fake(changed(variables, {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
    EXPECT_EQ(job.master_addr, "n3");
    EXPECT_EQ(job.key_value_space.kind, kind);
  }
  EXPECT_EQ(find_launch_info(fake(kHydraOnNodes)).key_value_space.pmi_fd, 6);
  EXPECT_THAT(message_of(changed(kHydraOnNodes, {{"PMI_FD", "x"}})), HasSubstr("PMI_FD=\"x\""));
}

TEST(LaunchedInfo, SlurmsKeySpaceIsThatOfItsPlugin) {
  const KeyValueSpaceAccess none = find_launch_info(fake(kSlurm)).key_value_space;
  EXPECT_EQ(none.kind, KeyValueSpaceKind::kNone);
  EXPECT_THAT(none.problem, HasSubstr("srun --mpi=pmix"));
  const FakeVariables pmi{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}};
  const KeyValueSpaceAccess pmi2 = find_launch_info(fake(changed(kSlurm, pmi))).key_value_space;
  EXPECT_EQ(pmi2.kind, KeyValueSpaceKind::kPmi);
  EXPECT_EQ(pmi2.pmi_fd, 11);
  const FakeVariables pmix{{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.4.0"}};
  EXPECT_EQ(find_launch_info(fake(changed(kSlurm, pmix))).key_value_space.kind,
            KeyValueSpaceKind::kPmix);
}

TEST(LaunchedInfo, AKeySpaceOfOtherProcessesIsNotUsed) {
  const auto kind_of = [](const FakeVariables& variables, int rank = -1, int world_size = -1) {
    return find_launch_info(fake(variables), rank, world_size).key_value_space.kind;
  };
  const FakeVariables place{{"MASTER_ADDR", "alpha"}};
  const FakeVariables pmi{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}};
  // On one node nobody needs it.
  EXPECT_EQ(kind_of(kOpenMpiOnOneNode), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydra, {{"PMI_FD", "6"}})), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(changed(kSlurm, pmi), {{"SLURM_STEP_NODELIST", "n7"}})),
            KeyValueSpaceKind::kNone);
  // Inherited from a launcher around this one, or the ranks are the user's.
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_RANK", "1"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_SIZE", "2"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"RANK", "3"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydraOnNodes, place), 3), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kOpenMpiOnNodes, changed(place, {{"RANK", "1"}, {"WORLD_SIZE", "4"}}))),
            KeyValueSpaceKind::kNone);
  // Of two, the launcher's own.
  EXPECT_EQ(kind_of(changed(kHydraOnNodes, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "outer"}})),
            KeyValueSpaceKind::kPmi);
}

TEST(LaunchedInfo, OfOthersThatSpeakPmi) {
  const LaunchInfo found = find_launch_info(fake(
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "0"}, {"PMI_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_TRUE(found.is_on_one_node);
}

TEST(LaunchedInfo, PmixTellsOnlyTheRank) {
  const FakeVariables prte{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-vm-16583@1"}};
  EXPECT_EQ(
      message_of(prte),
      "PMIx rendezvous: WORLD_SIZE is not set. a launcher that speaks PMIx, as prterun, has set "
      "PMIX_RANK=1, and sets no variable for how many ranks there are: set WORLD_SIZE to their "
      "number for all of them, or give init_process_group() a rank and a world_size");
  // What is known is no less.
  EXPECT_THAT(message_of(without(prte, "PMIX_NAMESPACE")),
              AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("WORLD_SIZE is not set")));
  const LaunchInfo told = find_launch_info(fake(changed(prte, {{"WORLD_SIZE", "4"}})));
  EXPECT_EQ(told.master_addr, "");
  EXPECT_EQ(told.key_value_space.kind, KeyValueSpaceKind::kPmix);
  const LaunchInfo found =
      find_launch_info(fake(changed(prte, {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}})));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_GE(found.master_port, 61000);
}

TEST(LaunchedInfo, OfKubeflowTrainer) {
  const LaunchInfo found = find_launch_info(fake(kTrainer));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.master_addr, "mnist-node-0-0.mnist");
  EXPECT_EQ(found.master_port, 29400);
  EXPECT_EQ(message_of(changed(kTrainer, {{"PET_NPROC_PER_NODE", "auto"}})), "no error");
  EXPECT_EQ(message_of(without(kTrainer, "PET_NPROC_PER_NODE")), "no error");
  EXPECT_THAT(message_of(changed(kTrainer, {{"PET_NPROC_PER_NODE", "4"}})),
              AllOf(HasSubstr("PET_NPROC_PER_NODE=\"4\""), HasSubstr("torchrun")));
}

// The PyTorchJob operator sets torchrun's variables beside its options.
TEST(LaunchedInfo, OfAPyTorchJob) {
  const LaunchInfo found = find_launch_info(fake(changed(kTrainer,
                                                         {{"PET_NPROC_PER_NODE", "auto"},
                                                          {"MASTER_ADDR", "mnist-master-0"},
                                                          {"MASTER_PORT", "23456"},
                                                          {"RANK", "1"},
                                                          {"WORLD_SIZE", "3"}})));
  EXPECT_EQ(found.master_addr, "mnist-master-0");
  EXPECT_EQ(found.master_port, 23456);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 3);
  EXPECT_EQ(found.launcher, "");
}

TEST(LaunchInfo, APlaceIsDescribedByWhoGaveIt) {
  LaunchInfo env = launch_info(0, 29500);
  EXPECT_EQ(describe_place(env), "MASTER_ADDR=127.0.0.1, MASTER_PORT=29500");
  env.place_source = "init_method file:///tmp/job";
  EXPECT_EQ(describe_place(env), "127.0.0.1:29500 (init_method file:///tmp/job)");
  env.master_addr = "::1";
  EXPECT_EQ(describe_place(env), "[::1]:29500 (init_method file:///tmp/job)");
}

TEST(LaunchInfo, Rank0ServesTheStoreUnlessTheLauncherDoes) {
  EXPECT_TRUE(serves_store(launch_info(0, 29500)));
  EXPECT_FALSE(serves_store(launch_info(1, 29500)));
  LaunchInfo of_agent = launch_info(0, 29500);
  of_agent.uses_agent_store = true;
  EXPECT_FALSE(serves_store(of_agent));
}

TEST(LaunchInfo, RanksOfOneNodeMeetOnItsLoopbackWhateverIsSaid) {
  LaunchInfo env = launch_info(0, 29500);
  env.master_addr = "node7";
  EXPECT_EQ(meeting_host(env), "node7");
  env.is_on_one_node = true;
  EXPECT_EQ(meeting_host(env), net::loopback_host());
}

}  // namespace
}  // namespace unisono::rendezvous
