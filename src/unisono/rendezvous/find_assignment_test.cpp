#include "unisono/rendezvous/find_assignment.h"

#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/fake_environment.h"
#include "unisono/rendezvous/key_space_access.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// In all: a rank as the launcher shows it, by the variables that are needed and no others.
const FakeVariables kSlurm{{"SLURM_PROCID", "5"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_STEP_NODELIST", "node[003-004,7]"},
                           {"SLURM_JOB_ID", "4540"}};
const FakeVariables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                             {"PMIX_RANK", "1"},
                             {"PMIX_NAMESPACE", "393740289"}};
const FakeVariables kHydra{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};
const FakeVariables kOpenMpiOnNodes = changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
const FakeVariables kTwoOfANode{{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const FakeVariables kHydraOnNodes = changed(changed(kHydra, kTwoOfANode), {{"PMI_FD", "6"}});
const FakeVariables kTrainer{{"PET_NODE_RANK", "1"},
                             {"PET_NNODES", "2"},
                             {"PET_NPROC_PER_NODE", "1"},
                             {"PET_MASTER_ADDR", "mnist-node-0-0.mnist"},
                             {"PET_MASTER_PORT", "29400"}};

std::string message_of(const FakeVariables& variables, int rank = -1, int world_size = -1) {
  try {
    (void)find_assignment(fake(variables), rank, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(FindAssignment, JobsSideBySideAreToldFromOne) {
  const auto first_of = [](const FakeVariables& variables, const char* rank) {
    return describe_jobs_side_by_side(fake(changed(variables, {{rank, "0"}})));
  };
  EXPECT_THAT(first_of(kOpenMpi, "OMPI_COMM_WORLD_RANK"),
              HasSubstr("Open MPI's mpirun started this command 4 times (OMPI_COMM_WORLD_SIZE=4, "
                        "OMPI_COMM_WORLD_RANK=0), and each makes a job of its own"));
  EXPECT_THAT(first_of(kHydra, "PMI_RANK"), HasSubstr("PMI_SIZE=4"));
  EXPECT_THAT(first_of(kSlurm, "SLURM_PROCID"), HasSubstr("SLURM_NTASKS=8"));
  EXPECT_EQ(describe_jobs_side_by_side(fake(kSlurm)), "") << "the first one says it";
  EXPECT_EQ(describe_jobs_side_by_side(
                fake(changed(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}))),
            "");
  EXPECT_EQ(describe_jobs_side_by_side(fake({})), "");
}

TEST(FindAssignment, OfSlurm) {
  const Assignment found = find_assignment(fake(kSlurm));
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_addr, "node003");
  EXPECT_EQ(found.master_port, 61004);
  EXPECT_FALSE(found.is_on_one_node);
  EXPECT_EQ(found.launcher, "Slurm");
  EXPECT_EQ(found.origin,
            "Slurm (SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID)");
}

// Who has numbered the ranks himself may have made one job of several steps.
TEST(FindAssignment, TheJobIsTheLaunchersWhereTheRanksAre) {
  const FakeVariables step = changed(kSlurm, {{"SLURM_STEP_ID", "3"}});
  const std::string job = "SLURM_JOB_ID=4540, SLURM_STEP_ID=3";
  EXPECT_EQ(find_assignment(fake(step)).job, job);
  const FakeVariables with_place = changed(step, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(find_assignment(fake(with_place)).job, job);
  EXPECT_EQ(find_assignment(fake(changed(with_place, {{"WORLD_SIZE", "8"}}))).job, job);
  EXPECT_EQ(find_assignment(fake(changed(step, {{"RANK", "1"}}))).job, "");
  EXPECT_EQ(find_assignment(fake(step), 1).job, "");
  const FakeVariables all_given = changed(with_place, {{"WORLD_SIZE", "9"}, {"RANK", "8"}});
  EXPECT_EQ(find_assignment(fake(all_given)).job, "");
}

TEST(FindAssignment, TasksOfOneNodeMeetOnItsLoopback) {
  const Assignment found =
      find_assignment(fake(changed(kSlurm, {{"SLURM_STEP_NODELIST", "node7"}})));
  EXPECT_EQ(found.master_addr, "node7");
  EXPECT_TRUE(found.is_on_one_node);
}

TEST(FindAssignment, StepsOfASlurmJobMeetAtDifferentPorts) {
  std::map<int, std::string> ports;
  for (int job = 7; job < 9; ++job) {
    for (int step = 0; step < 20; ++step) {
      const Assignment found = find_assignment(fake(changed(
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
      find_assignment(fake(changed(kSlurm, {{"SLURM_STEP_ID", "3"}, {"PYTORCH_VERSION", "2"}})))
          .master_port,
      61004);
}

TEST(FindAssignment, OfOpenMpi) {
  const Assignment found = find_assignment(fake(kOpenMpi));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_TRUE(found.is_on_one_node);
  EXPECT_EQ(found.launcher, "Open MPI");
  EXPECT_GE(found.master_port, 61000);
  // The same for all ranks of a job, another one for another job.
  const Environment other = fake(changed(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}));
  EXPECT_EQ(find_assignment(other).master_port, found.master_port);
  const Environment next = fake(changed(kOpenMpi, {{"PMIX_NAMESPACE", "393740290"}}));
  EXPECT_NE(find_assignment(next).master_port, found.master_port);
}

TEST(FindAssignment, OfMpichAndIntelMpi) {
  const Assignment found = find_assignment(fake(kHydra));
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
  EXPECT_NE(find_assignment(fake(intel)).master_port, find_assignment(fake(next)).master_port);
}

TEST(FindAssignment, MpirunOnSeveralNodesNeedsAPlaceWithoutAKeySpace) {
  for (const FakeVariables& variables : {without(kOpenMpiOnNodes, "PMIX_NAMESPACE"),
                                         changed(kHydra, kTwoOfANode),
                                         without(kHydra, "MPI_LOCALNRANKS")}) {
    EXPECT_THAT(message_of(variables),
                AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("name of rank 0's node")));
    const Assignment found = find_assignment(fake(changed(variables, {{"MASTER_ADDR", "alpha"}})));
    EXPECT_EQ(found.master_addr, "alpha");
    EXPECT_FALSE(found.is_on_one_node);
    // In a Slurm job its first node.
    const Assignment job = find_assignment(
        fake(changed(variables, {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
    EXPECT_EQ(job.master_addr, "n3");
    EXPECT_FALSE(job.is_on_one_node);
  }
  const Assignment hydra =
      find_assignment(fake(changed(changed(kHydra, kTwoOfANode), {{"MASTER_ADDR", "alpha"}})));
  EXPECT_EQ(hydra.master_port, 29500);
  const Assignment job = find_assignment(fake(changed(
      changed(kHydra, kTwoOfANode), {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
  EXPECT_EQ(job.master_port, 61009);
}

TEST(FindAssignment, RankZeroTellsThePlaceInTheKeySpaceOfMpirun) {
  for (const auto& [variables, kind] : {std::pair(kOpenMpiOnNodes, KeySpaceKind::kPmix),
                                        std::pair(kHydraOnNodes, KeySpaceKind::kPmi)}) {
    const Assignment found = find_assignment(fake(variables));
    EXPECT_EQ(found.key_space.kind, kind);
    EXPECT_EQ(found.master_addr, "");
    EXPECT_EQ(found.master_port, 0);
    EXPECT_FALSE(found.is_on_one_node);
    EXPECT_EQ(find_assignment(fake(changed(variables, {{"MASTER_PORT", "29700"}}))).master_port,
              29700);
    const Assignment given = find_assignment(fake(changed(variables, {{"MASTER_ADDR", "alpha"}})));
    EXPECT_EQ(given.master_addr, "alpha");
    EXPECT_EQ(given.key_space.kind, kind);
    const Assignment job = find_assignment(
        fake(changed(variables, {{"SLURM_JOB_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "9"}})));
    EXPECT_EQ(job.master_addr, "n3");
    EXPECT_EQ(job.key_space.kind, kind);
  }
  EXPECT_EQ(find_assignment(fake(kHydraOnNodes)).key_space.pmi_fd, 6);
  EXPECT_THAT(message_of(changed(kHydraOnNodes, {{"PMI_FD", "x"}})), HasSubstr("PMI_FD=\"x\""));
}

TEST(FindAssignment, SlurmsKeySpaceIsThatOfItsPlugin) {
  const KeySpaceAccess none = find_assignment(fake(kSlurm)).key_space;
  EXPECT_EQ(none.kind, KeySpaceKind::kNone);
  EXPECT_THAT(none.problem, HasSubstr("srun --mpi=pmix"));
  const FakeVariables pmi{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}};
  const KeySpaceAccess pmi2 = find_assignment(fake(changed(kSlurm, pmi))).key_space;
  EXPECT_EQ(pmi2.kind, KeySpaceKind::kPmi);
  EXPECT_EQ(pmi2.pmi_fd, 11);
  const FakeVariables pmix{{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.4.0"}};
  EXPECT_EQ(find_assignment(fake(changed(kSlurm, pmix))).key_space.kind, KeySpaceKind::kPmix);
}

TEST(FindAssignment, AKeySpaceOfOtherProcessesIsNotUsed) {
  const auto kind_of = [](const FakeVariables& variables, int rank = -1, int world_size = -1) {
    return find_assignment(fake(variables), rank, world_size).key_space.kind;
  };
  const FakeVariables place{{"MASTER_ADDR", "alpha"}};
  const FakeVariables pmi{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}};
  // On one node nobody needs it.
  EXPECT_EQ(kind_of(kOpenMpi), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydra, {{"PMI_FD", "6"}})), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(changed(kSlurm, pmi), {{"SLURM_STEP_NODELIST", "n7"}})),
            KeySpaceKind::kNone);
  // Inherited from a launcher around this one, or the ranks are the user's.
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_RANK", "1"}}))), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"PMI_SIZE", "2"}}))), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kSlurm, changed(pmi, {{"RANK", "3"}}))), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kHydraOnNodes, place), 3), KeySpaceKind::kNone);
  EXPECT_EQ(kind_of(changed(kOpenMpiOnNodes, changed(place, {{"RANK", "1"}, {"WORLD_SIZE", "4"}}))),
            KeySpaceKind::kNone);
  // Of two, the launcher's own.
  EXPECT_EQ(kind_of(changed(kHydraOnNodes, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "outer"}})),
            KeySpaceKind::kPmi);
}

TEST(FindAssignment, OfOthersThatSpeakPmi) {
  const Assignment found = find_assignment(fake(
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "0"}, {"PMI_LOCAL_SIZE", "2"}}));
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_TRUE(found.is_on_one_node);
}

TEST(FindAssignment, PmixTellsOnlyTheRank) {
  const FakeVariables prte{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-vm-16583@1"}};
  EXPECT_THAT(message_of(prte), HasSubstr("WORLD_SIZE is not set"));
  const Assignment told = find_assignment(fake(changed(prte, {{"WORLD_SIZE", "4"}})));
  EXPECT_EQ(told.master_addr, "");
  EXPECT_EQ(told.key_space.kind, KeySpaceKind::kPmix);
  const Assignment found =
      find_assignment(fake(changed(prte, {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}})));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_GE(found.master_port, 61000);
}

TEST(FindAssignment, OfKubeflowTrainer) {
  const Assignment found = find_assignment(fake(kTrainer));
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
TEST(FindAssignment, OfAPyTorchJob) {
  const Assignment found = find_assignment(fake(changed(kTrainer,
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

TEST(FindAssignment, WhatTheUserSetsComesFirst) {
  const FakeVariables given{
      {"MASTER_ADDR", "10.0.0.1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  for (const FakeVariables& launcher : {kSlurm, kOpenMpi, kHydra, kTrainer}) {
    const Assignment found = find_assignment(fake(changed(launcher, given)));
    EXPECT_EQ(found.rank, 0);
    EXPECT_EQ(found.world_size, 2);
    EXPECT_EQ(found.local_rank, 0);
    EXPECT_EQ(found.master_addr, "10.0.0.1");
    EXPECT_EQ(found.master_port, 29500);
    EXPECT_EQ(found.launcher, "");
    EXPECT_EQ(found.origin, "env:// (MASTER_ADDR, WORLD_SIZE, RANK, LOCAL_RANK)");
  }
}

TEST(FindAssignment, EachVariableIsFilledInByItself) {
  const Assignment place =
      find_assignment(fake(changed(kSlurm, {{"MASTER_ADDR", "alpha"}, {"MASTER_PORT", "1234"}})));
  EXPECT_EQ(place.master_addr, "alpha");
  EXPECT_EQ(place.master_port, 1234);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.launcher, "Slurm");
  const Assignment size = find_assignment(fake(changed(kSlurm, {{"WORLD_SIZE", "8"}})));
  EXPECT_EQ(size.world_size, 8);
  EXPECT_EQ(size.rank, 5);
  const Assignment rank = find_assignment(fake(changed(kSlurm, {{"RANK", "7"}})));
  EXPECT_EQ(rank.rank, 7);
  EXPECT_EQ(rank.local_rank, 1);
}

TEST(FindAssignment, TheProgramsOptionsComeFirst) {
  const Assignment found = find_assignment(fake(kSlurm), 3, 6);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.world_size, 6);
  EXPECT_EQ(found.master_addr, "node003");
  EXPECT_THAT(message_of(kSlurm, 9),
              HasSubstr("RANK=9 (given by the program) is not below SLURM_NTASKS=8"));
}

TEST(FindAssignment, OneMessageNamesAllThatIsMissing) {
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

TEST(FindAssignment, OneMessageNamesAllThatIsWrongWithItsValue) {
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

TEST(FindAssignment, VariablesMustAgree) {
  EXPECT_THAT(message_of(changed(kSlurm, {{"SLURM_PROCID", "8"}})),
              HasSubstr("SLURM_PROCID=8 is not below SLURM_NTASKS=8"));
  EXPECT_THAT(message_of(changed(kSlurm, {{"WORLD_SIZE", "9"}})),
              HasSubstr("WORLD_SIZE=9 differs from SLURM_NTASKS=8, the number of processes that "
                        "srun started"));
}

TEST(FindAssignment, WhereNothingIsSetAMessageSaysWhatWasLookedFor) {
  EXPECT_THAT(message_of({}),
              AllOf(HasSubstr("MASTER_ADDR is not set; WORLD_SIZE is not set; RANK is not set"),
                    HasSubstr("unisono run -n N"),
                    HasSubstr("Open MPI (OMPI_COMM_WORLD_RANK)"),
                    HasSubstr("Slurm (SLURM_PROCID)")));
  // Where all is given but wrong, nobody looks for launchers.
  EXPECT_THAT(message_of({{"MASTER_ADDR", "a"}, {"RANK", "x"}, {"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("RANK=\"x\""), Not(HasSubstr("Slurm"))));
}

TEST(FindAssignment, InABatchScriptAMessageSaysSrun) {
  EXPECT_THAT(message_of({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
              AllOf(HasSubstr("RANK is not set"), HasSubstr("Slurm job 7, not a task: \"srun")));
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
  EXPECT_EQ(missing(kOpenMpi).count("OMP_NUM_THREADS"), 0U);
  // What rank 0 tells later can't be said now.
  EXPECT_THROW((void)missing(kOpenMpiOnNodes), Error);
}

}  // namespace
}  // namespace unisono::rendezvous
