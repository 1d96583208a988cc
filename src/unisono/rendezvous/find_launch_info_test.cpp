#include "unisono/rendezvous/find_launch_info.h"

#include <unistd.h>

#include <map>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/testing/ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const FakeVariables kGood{{"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "1234"},
                          {"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"}};

FakeVariables good_but(const std::string& name, const std::string& value) {
  return changed(kGood, {{name, value}});
}

TEST(FindLaunchInfo, SeveralProcessesOfALauncherAreToldFromOne) {
  EXPECT_TRUE(has_launcher_of_several(fake(kOpenMpiOnOneNode)));
  EXPECT_TRUE(has_launcher_of_several(fake(kHydra)));
  EXPECT_TRUE(has_launcher_of_several(fake(kSlurm)));
  EXPECT_FALSE(has_launcher_of_several(fake(changed(kSlurm, {{"RANK", "0"}}))))
      << "somebody else has started this one";
  EXPECT_FALSE(has_launcher_of_several(
      fake(changed(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}))));
  EXPECT_FALSE(has_launcher_of_several(fake({})));
}

TEST(FindLaunchInfo, WhatTheUserSetsComesFirst) {
  const FakeVariables given{
      {"MASTER_ADDR", "10.0.0.1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  for (const FakeVariables& launcher : {kSlurm, kOpenMpiOnOneNode, kHydra, kTrainer}) {
    const LaunchInfo found = find_launch_info(fake(changed(launcher, given)));
    EXPECT_EQ(found.rank, 0);
    EXPECT_EQ(found.world_size, 2);
    EXPECT_EQ(found.local_rank, 0);
    EXPECT_EQ(found.master_addr, "10.0.0.1");
    EXPECT_EQ(found.master_port, 29500);
    EXPECT_EQ(found.launcher, "");
    EXPECT_EQ(found.origin, "env:// (MASTER_ADDR, WORLD_SIZE, RANK, LOCAL_RANK)");
  }
}

TEST(FindLaunchInfo, EachVariableIsFilledInByItself) {
  const LaunchInfo place =
      find_launch_info(fake(changed(kSlurm, {{"MASTER_ADDR", "alpha"}, {"MASTER_PORT", "1234"}})));
  EXPECT_EQ(place.master_addr, "alpha");
  EXPECT_EQ(place.master_port, 1234);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.launcher, "Slurm");
  const LaunchInfo size = find_launch_info(fake(changed(kSlurm, {{"WORLD_SIZE", "8"}})));
  EXPECT_EQ(size.world_size, 8);
  EXPECT_EQ(size.rank, 5);
  const LaunchInfo rank = find_launch_info(fake(changed(kSlurm, {{"RANK", "7"}})));
  EXPECT_EQ(rank.rank, 7);
  EXPECT_EQ(rank.local_rank, 1);
}

TEST(FindLaunchInfo, TheProgramsOptionsComeFirst) {
  const LaunchInfo found = find_launch_info(fake(kSlurm), 3, 6);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.world_size, 6);
  EXPECT_EQ(found.master_addr, "node003");
  EXPECT_THAT(message_of(kSlurm, 9),
              HasSubstr("RANK=9 (given by the program) is not below SLURM_NTASKS=8"));
  EXPECT_THAT(message_of(kGood, -2), HasSubstr("RANK=-2 (given by the program) is negative. "));
  EXPECT_THAT(message_of(kGood, 0, -4),
              HasSubstr("WORLD_SIZE=-4 (given by the program) is negative. "));
}

TEST(FindLaunchInfo, Rank0Of0LeavesBothToTheLauncher) {
  for (const FakeVariables& launcher : {kSlurm, kOpenMpiOnOneNode, kHydra, kTrainer}) {
    const LaunchInfo plain = find_launch_info(fake(launcher));
    // A program may also set an address.
    for (const FakeVariables& place : {FakeVariables{}, {{"MASTER_ADDR", "alpha"}}}) {
      const LaunchInfo found = find_launch_info(fake(changed(launcher, place)), 0, 0);
      EXPECT_EQ(found.rank, plain.rank);
      EXPECT_EQ(found.world_size, plain.world_size);
      EXPECT_EQ(found.launcher, plain.launcher);
    }
  }
  const FakeVariables torchruns{{"MASTER_ADDR", "alpha"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}};
  EXPECT_EQ(find_launch_info(fake(torchruns), 0, 0).rank, 2);
  EXPECT_THAT(message_of({{"MASTER_ADDR", "alpha"}}, 0, 0),
              HasSubstr("WORLD_SIZE=0 (given by the program) leaves no rank"));
  EXPECT_THAT(message_of(changed(kOpenMpiOnOneNode, {{"MASTER_ADDR", "alpha"}}), 1, 0),
              HasSubstr("WORLD_SIZE=0 (given by the program) leaves no rank"));
}

TEST(FindLaunchInfo, OneMessageNamesAllThatIsMissing) {
  const FakeVariables step{{"SLURM_STEP_ID", "0"}};
  EXPECT_THAT(message_of(step),
              AllOf(HasSubstr("Slurm rendezvous: "),
                    HasSubstr("SLURM_STEP_NODELIST is not set"),
                    HasSubstr("SLURM_JOB_ID is not set"),
                    HasSubstr("SLURM_NTASKS is not set"),
                    HasSubstr("SLURM_PROCID is not set"),
                    HasSubstr("srun sets SLURM_PROCID and SLURM_NTASKS")));
  EXPECT_THAT(
      message_of({{"OMPI_COMM_WORLD_RANK", "0"}}),
      AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE is not set"), Not(HasSubstr("MASTER_ADDR is"))));
}

TEST(FindLaunchInfo, OneMessageNamesAllThatIsWrongWithItsValue) {
  EXPECT_THAT(message_of({{"SLURM_PROCID", "-1"},
                          {"SLURM_NTASKS", "many"},
                          {"SLURM_LOCALID", "x"},
                          {"SLURM_STEP_ID", "first"},
                          {"SLURM_STEP_NODELIST", "n[1-"},
                          {"SLURM_JOB_ID", "#7"},
                          {"MASTER_PORT", "0"}}),
              AllOf(HasSubstr("SLURM_PROCID=\"-1\""),
                    HasSubstr("SLURM_NTASKS=\"many\""),
                    HasSubstr("SLURM_LOCALID=\"x\""),
                    HasSubstr("SLURM_STEP_NODELIST: node list \"n[1-\""),
                    HasSubstr("MASTER_PORT=\"0\"")));
  EXPECT_THAT(message_of(changed(kSlurm, {{"SLURM_STEP_ID", "first"}, {"SLURM_JOB_ID", "#7"}})),
              AllOf(HasSubstr("SLURM_STEP_ID=\"first\""), HasSubstr("SLURM_JOB_ID=\"#7\"")));
  EXPECT_THAT(message_of(changed(kHydra, {{"PMI_SIZE", "0"}, {"PMI_RANK", ""}})),
              AllOf(HasSubstr("PMI_SIZE=\"0\""), HasSubstr("PMI_RANK=\"\"")));
}

TEST(FindLaunchInfo, VariablesMustAgree) {
  EXPECT_THAT(message_of(changed(kSlurm, {{"SLURM_PROCID", "8"}})),
              HasSubstr("SLURM_PROCID=8 is not below SLURM_NTASKS=8"));
  EXPECT_THAT(message_of(changed(kSlurm, {{"WORLD_SIZE", "9"}})),
              HasSubstr("WORLD_SIZE=9 differs from SLURM_NTASKS=8, the number of processes that "
                        "srun started"));
}

TEST(FindLaunchInfo, WhereNothingIsSetAMessageSaysWhatWasLookedFor) {
  EXPECT_THAT(message_of({}),
              AllOf(HasSubstr("MASTER_ADDR is not set; WORLD_SIZE is not set; RANK is not set"),
                    HasSubstr("unisono run -n N"),
                    HasSubstr("Open MPI (OMPI_COMM_WORLD_RANK)"),
                    HasSubstr("Slurm (SLURM_PROCID)")));
  // If all variables are set but invalid, launchers are not considered.
  EXPECT_THAT(message_of({{"MASTER_ADDR", "a"}, {"RANK", "x"}, {"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("RANK=\"x\""), Not(HasSubstr("Slurm"))));
}

TEST(FindLaunchInfo, InABatchScriptAMessageSaysSrun) {
  EXPECT_THAT(message_of({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
              AllOf(HasSubstr("RANK is not set"), HasSubstr("Slurm job 7, not a task: \"srun")));
}

TEST(FindLaunchInfo, ReadsWhatALauncherSets) {
  const LaunchInfo env = find_launch_info(fake(kGood));
  EXPECT_EQ(env.master_addr, "10.0.0.1");
  EXPECT_EQ(env.master_port, 1234);
  EXPECT_EQ(env.rank, 2);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_FALSE(env.uses_agent_store);
}

TEST(FindLaunchInfo, PortAndLocalRankMayBeUnset) {
  const LaunchInfo env =
      find_launch_info(fake({{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.local_rank, -1);
}

TEST(FindLaunchInfo, ALauncherMayServeTheStore) {
  for (const char* text : {"True", "true", "1"}) {
    EXPECT_TRUE(
        find_launch_info(fake(good_but("TORCHELASTIC_USE_AGENT_STORE", text))).uses_agent_store);
  }
  for (const char* text : {"False", "0", ""}) {
    EXPECT_FALSE(
        find_launch_info(fake(good_but("TORCHELASTIC_USE_AGENT_STORE", text))).uses_agent_store);
  }
}

TEST(FindLaunchInfo, ALocalRankMustBeBelowTheLocalWorldSize) {
  EXPECT_THAT(message_of(good_but("LOCAL_WORLD_SIZE", "1")),
              HasSubstr("LOCAL_RANK=1 is not below LOCAL_WORLD_SIZE=1"));
  EXPECT_THAT(message_of(good_but("LOCAL_WORLD_SIZE", "two")),
              HasSubstr("LOCAL_WORLD_SIZE=\"two\""));
  EXPECT_EQ(message_of(good_but("LOCAL_WORLD_SIZE", "2")), "no error");
  const FakeVariables mpi{{"OMPI_COMM_WORLD_RANK", "0"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"}};
  EXPECT_THAT(message_of(mpi),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK=3 is not below OMPI_COMM_WORLD_LOCAL_SIZE=2"));
}

TEST(FindLaunchInfo, EveryBadNumberIsRefused) {
  for (const char* text :
       {"", " 1", "1 ", "+1", "0x1", "1e1", "-1", "2147483648", "99999999999999999999"}) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_RANK"}) {
      EXPECT_THAT(message_of(good_but(name, text)), HasSubstr(std::string(name) + "=\"" + text))
          << name;
    }
  }
  EXPECT_THAT(message_of(good_but("RANK", "2147483648")),
              HasSubstr("is not a whole number of at least 0 and at most 2147483647"));
  EXPECT_THAT(message_of(good_but("MASTER_PORT", "0")), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(message_of(good_but("WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(message_of(good_but("MASTER_ADDR", "a b")), HasSubstr("MASTER_ADDR=\"a b\""));
}

TEST(ElasticLauncher, IsToldByItsFileOfErrors) {
  const FakeVariables ours{{"TORCHELASTIC_RUN_ID", "job7"}};
  EXPECT_EQ(elastic_launcher(fake(ours)), "unisono run");
  const auto with_errors = [&](const std::string& path) {
    return elastic_launcher(fake(changed(ours, {{"TORCHELASTIC_ERROR_FILE", path}})));
  };
  EXPECT_EQ(with_errors("/proc/12/fd/9"), "unisono run");
  EXPECT_EQ(with_errors("/tmp/none_x/attempt_0/0/error.json"), "torchrun");
  EXPECT_EQ(elastic_launcher(fake(kSlurm)), "");
}

TEST(IsInJob, WhereSomebodyStartedRanks) {
  EXPECT_FALSE(is_in_job(fake({})));
  EXPECT_TRUE(is_in_job(fake({{"RANK", "x"}})));
  EXPECT_TRUE(is_in_job(fake({{"WORLD_SIZE", "1"}})));
  EXPECT_TRUE(is_in_job(fake(kSlurm)));
  // A shell that srun has started.
  EXPECT_FALSE(is_in_job(fake(changed(kSlurm, {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}))));
}

// The variables that the hook of NVIDIA's containers sets.
TEST(MissingTorchVariables, AreThoseOfAContainerOfPyTorch) {
  const auto missing = [](const FakeVariables& variables) {
    FakeVariables found;
    for (const Variable& variable : missing_torch_variables(fake(variables))) {
      found[variable.name] = variable.value;
    }
    return found;
  };
  const FakeVariables container =
      changed(kSlurm, {{"PYTORCH_VERSION", "2.1.0"}, {"SLURM_STEP_ID", "2"}});
  const FakeVariables all{{"MASTER_ADDR", "node003"},
                          {"MASTER_PORT", "61004"},
                          {"WORLD_SIZE", "8"},
                          {"RANK", "5"},
                          {"LOCAL_RANK", "1"},
                          {"OMP_NUM_THREADS", "1"}};
  EXPECT_EQ(missing(container), all);
  // The number of tasks equals the number of nodes.
  EXPECT_EQ(missing(changed(container, {{"SLURM_STEP_NODELIST", "n[1-8]"}})),
            without(changed(all, {{"MASTER_ADDR", "n1"}}), "OMP_NUM_THREADS"));
  // Existing variables are not overwritten.
  for (const auto& [name, value] : all) {
    EXPECT_EQ(missing(changed(container, {{name, value}})), without(all, name)) << name;
  }
  EXPECT_EQ(missing(kOpenMpiOnOneNode).count("OMP_NUM_THREADS"), 0U);
  // The values that rank 0 publishes later are not available now.
  EXPECT_THROW((void)missing(kOpenMpiOnNodes), Error);
}

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

// Users with their own numbering of ranks may combine several steps in a single job.
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
  // In PyTorch containers other programs use the port of the job.
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
  // All ranks of a job have the same port, and other jobs have other ports.
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
  // No variable identifies the job; the process that started the ranks does.
  EXPECT_EQ(found.master_port, 61000 + ::getppid() % 4536);
  // Intel MPI sets a variable that identifies the job.
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
  EXPECT_EQ(source_of(kOpenMpiOnNodes), "published by rank 0 in the launcher's key space");
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
    // In a Slurm job the address is the job's first node.
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
  // On one node the key space is not needed.
  EXPECT_EQ(kind_of(kOpenMpiOnOneNode), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydra, {{"PMI_FD", "6"}})), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(changed(kSlurm, pmi), {{"SLURM_STEP_NODELIST", "n7"}})),
            KeyValueSpaceKind::kNone);
  // Inherited from an outer launcher, or the user has numbered the ranks.
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_RANK", "1"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_SIZE", "2"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"RANK", "3"}}))), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydraOnNodes, place), 3), KeyValueSpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kOpenMpiOnNodes, changed(place, {{"RANK", "1"}, {"WORLD_SIZE", "4"}}))),
            KeyValueSpaceKind::kNone);
  // With two key spaces, the launcher's own is used.
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
  EXPECT_EQ(message_of(prte),
            "PMIx rendezvous: WORLD_SIZE is not set. a launcher with PMIx, as prterun, has set "
            "PMIX_RANK=1, and sets no variable for the number of ranks: set WORLD_SIZE to it for "
            "all of them, or give init_process_group() a rank and a world_size");
  // The other known variables remain valid.
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

// The PyTorchJob operator sets torchrun's variables in addition to its options.
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
