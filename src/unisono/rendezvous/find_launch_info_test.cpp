#include "unisono/rendezvous/find_launch_info.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

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
    // A program may name a place, too.
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
  // Where all is given but wrong, nobody looks for launchers.
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
              HasSubstr("is no whole number of at least 0 and at most 2147483647"));
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
  // A shell that srun started.
  EXPECT_FALSE(is_in_job(fake(changed(kSlurm, {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}))));
}

// What the hook of NVIDIA's containers sets.
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
  // As many tasks as nodes.
  EXPECT_EQ(missing(changed(container, {{"SLURM_STEP_NODELIST", "n[1-8]"}})),
            without(changed(all, {{"MASTER_ADDR", "n1"}}), "OMP_NUM_THREADS"));
  // Nothing is overwritten.
  for (const auto& [name, value] : all) {
    EXPECT_EQ(missing(changed(container, {{name, value}})), without(all, name)) << name;
  }
  EXPECT_EQ(missing(kOpenMpiOnOneNode).count("OMP_NUM_THREADS"), 0U);
  // What rank 0 tells later can't be said now.
  EXPECT_THROW((void)missing(kOpenMpiOnNodes), Error);
}

}  // namespace
}  // namespace unisono::rendezvous
