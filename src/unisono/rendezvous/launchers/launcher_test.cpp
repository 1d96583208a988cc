#include "unisono/rendezvous/launchers/launcher.h"

#include <gtest/gtest.h>

#include "unisono/net/hello.h"
#include "unisono/rendezvous/testing/ranks.h"

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

// Variables observed in ranks of mpirun in a Slurm job: the daemons of mpirun are tasks of a step.
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
  // Steps that Slurm creates for scripts and shells of salloc have reserved numbers.
  for (const char* step : {"4294967290", "4294967291", "4294967292"}) {
    EXPECT_EQ(found(changed(script, {{"SLURM_STEP_ID", step}, {"SLURM_STEP_NODELIST", "n1"}})),
              "none")
        << step;
  }
}

std::string job_of(const FakeVariables& variables) {
  const Launcher* const launcher = find_launcher(fake(variables));
  return launcher == nullptr ? "no launcher" : launched_job(fake(variables), *launcher);
}

const FakeVariables kSlurmStep{{"SLURM_JOB_ID", "4540"}, {"SLURM_STEP_ID", "3"}};
const FakeVariables kOpenMpiJob{{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-a-7@1"}};

TEST(LaunchedJob, IsWhatTheLauncherCallsIt) {
  EXPECT_EQ(job_of(kSlurmStep), "SLURM_JOB_ID=4540, SLURM_STEP_ID=3");
  EXPECT_EQ(job_of(kOpenMpiJob), "PMIX_NAMESPACE=prterun-a-7@1");
  EXPECT_EQ(job_of({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "a@1"}}), "PMIX_NAMESPACE=a@1");
  EXPECT_EQ(job_of({{"MPI_LOCALRANKID", "0"}, {"I_MPI_HYDRA_UUID", "1e2f"}}),
            "I_MPI_HYDRA_UUID=1e2f");
  EXPECT_EQ(job_of({{"PMI_RANK", "0"}, {"PMI_JOBID", "7.0"}}), "PMI_JOBID=7.0");
}

TEST(LaunchedJob, IsNothingWhereAPartIsMissing) {
  EXPECT_EQ(job_of({{"SLURM_STEP_ID", "3"}}), "");
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "4540"}, {"SLURM_STEP_NODELIST", "n1"}}), "");
  EXPECT_EQ(job_of(changed(kOpenMpiJob, {{"PMIX_NAMESPACE", ""}})), "");
  EXPECT_EQ(job_of({{"MPI_LOCALRANKID", "0"}}), "") << "MPICH's has none";
  EXPECT_EQ(job_of({{"PET_NODE_RANK", "0"}}), "");
}

TEST(LaunchedJob, FitsIntoAHello) {
  const std::string job = job_of(changed(kOpenMpiJob, {{"PMIX_NAMESPACE", std::string(300, 'n')}}));
  EXPECT_EQ(job.size(), net::kMaxJobBytes);
}

TEST(LaunchedJob, DiffersFromOthersOfTheSameKindOnly) {
  const std::string slurm = job_of(kSlurmStep);
  EXPECT_FALSE(are_different_jobs(slurm, slurm));
  EXPECT_TRUE(are_different_jobs(slurm, job_of(changed(kSlurmStep, {{"SLURM_JOB_ID", "4541"}}))));
  EXPECT_TRUE(are_different_jobs(slurm, job_of(changed(kSlurmStep, {{"SLURM_STEP_ID", "4"}}))));
  EXPECT_FALSE(are_different_jobs(slurm, job_of(kOpenMpiJob)));
  EXPECT_FALSE(are_different_jobs(slurm, ""));
  EXPECT_FALSE(are_different_jobs("", slurm));
  EXPECT_FALSE(are_different_jobs("", ""));
}

TEST(MpiImplementation, IsThatOfTheLauncher) {
  EXPECT_EQ(find_mpi_implementation(fake({{"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}})),
            MpiImplementation::kOpenMpi);
  EXPECT_EQ(find_mpi_implementation(fake({{"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}})),
            MpiImplementation::kOpenMpi);
  EXPECT_EQ(find_mpi_implementation(fake({{"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}})),
            MpiImplementation::kMpich);
}

TEST(MpiImplementation, ThereIsNoneForRanksOfOthers) {
  EXPECT_EQ(find_mpi_implementation(fake({})), std::nullopt);
  EXPECT_EQ(find_mpi_implementation(fake({{"RANK", "1"}, {"WORLD_SIZE", "2"}})), std::nullopt);
  EXPECT_EQ(find_mpi_implementation(fake({{"SLURM_PROCID", "1"}})), std::nullopt);
  // mpirun has started the launcher and not the rank.
  EXPECT_EQ(
      find_mpi_implementation(fake({{"OMPI_COMM_WORLD_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "a"}})),
      std::nullopt);
}

}  // namespace
}  // namespace unisono::rendezvous
