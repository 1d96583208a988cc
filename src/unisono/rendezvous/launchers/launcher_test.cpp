#include "unisono/rendezvous/launchers/launcher.h"

#include <cstdint>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/rendezvous/testing/fake_environment.h"

namespace unisono::rendezvous {
namespace {

std::string found(const FakeVariables& variables) {
  const Launcher* const launcher = find_launcher(fake(variables));
  return launcher == nullptr ? "none" : launcher->name;
}

TEST(Launcher, IsKnownByAnyOfItsVariables) {
  EXPECT_EQ(found({}), "none");
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "none");
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_RANK", "0"}}), "Open MPI");
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "2"}}), "Open MPI");
  EXPECT_EQ(found({{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "0"}}), "MPICH or Intel MPI");
  EXPECT_EQ(found({{"SLURM_STEP_ID", "0"}}), "Slurm");
  EXPECT_EQ(found({{"SLURM_STEP_NODELIST", "n1"}}), "Slurm");
  EXPECT_EQ(found({{"PMI_SIZE", "2"}}), "PMI");
  EXPECT_EQ(found({{"PMIX_RANK", "0"}}), "PMIx");
  EXPECT_EQ(found({{"PET_NODE_RANK", "0"}}), "Kubeflow Trainer");
}

// What was seen in ranks of mpirun in a Slurm job: their daemons are tasks of a step.
TEST(Launcher, OfSeveralIsTheOneThatWasStartedLast) {
  const FakeVariables daemon{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  EXPECT_EQ(found(changed(daemon, {{"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}})),
            "Open MPI");
  EXPECT_EQ(found(changed(daemon, {{"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}})),
            "MPICH or Intel MPI");
  EXPECT_EQ(found(changed(daemon, {{"PMI_RANK", "1"}, {"PMI_JOBID", "3.0"}})), "Slurm");
  EXPECT_EQ(found(changed(daemon, {{"PMIX_RANK", "1"}})), "Slurm");
}

TEST(Launcher, ABatchScriptIsNoTask) {
  const FakeVariables script{{"SLURM_JOB_ID", "7"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_JOB_NODELIST", "n[1-2]"}};
  EXPECT_EQ(found(script), "none");
  // The steps that Slurm makes for scripts and shells of salloc have numbers of their own.
  for (const char* step : {"4294967290", "4294967291", "4294967292"}) {
    EXPECT_EQ(found(changed(script, {{"SLURM_STEP_ID", step}, {"SLURM_STEP_NODELIST", "n1"}})),
              "none")
        << step;
  }
}

TEST(Launcher, PortsAreThoseThatSystemsDoNotGiveOut) {
  EXPECT_EQ(port_of(0), 61000);
  EXPECT_EQ(port_of(4535), 65535);
  EXPECT_EQ(port_of(4536), 61000);
  EXPECT_EQ(port_of("393740289"), port_of("393740289"));
  EXPECT_NE(port_of("393740289"), port_of("393740290"));
  std::set<std::uint16_t> ports;
  for (int job = 0; job < 100; ++job) {
    ports.insert(port_of("prterun-node1-" + std::to_string(job) + "@1"));
  }
  EXPECT_GE(*ports.begin(), 61000);
  EXPECT_GT(ports.size(), 90U);
}

}  // namespace
}  // namespace unisono::rendezvous
