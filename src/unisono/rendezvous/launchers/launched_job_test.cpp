#include "unisono/rendezvous/launchers/launched_job.h"

#include <string>

#include <gtest/gtest.h>

#include "unisono/net/hello.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/testing/fake_environment.h"

namespace unisono::rendezvous {
namespace {

std::string job_of(const FakeVariables& variables) {
  const Launcher* const launcher = find_launcher(fake(variables));
  return launcher == nullptr ? "no launcher" : launched_job(fake(variables), *launcher);
}

const FakeVariables kSlurm{{"SLURM_JOB_ID", "4540"}, {"SLURM_STEP_ID", "3"}};
const FakeVariables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-a-7@1"}};

TEST(LaunchedJob, IsWhatTheLauncherCallsIt) {
  EXPECT_EQ(job_of(kSlurm), "SLURM_JOB_ID=4540, SLURM_STEP_ID=3");
  EXPECT_EQ(job_of(kOpenMpi), "PMIX_NAMESPACE=prterun-a-7@1");
  EXPECT_EQ(job_of({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "a@1"}}), "PMIX_NAMESPACE=a@1");
  EXPECT_EQ(job_of({{"MPI_LOCALRANKID", "0"}, {"I_MPI_HYDRA_UUID", "1e2f"}}),
            "I_MPI_HYDRA_UUID=1e2f");
  EXPECT_EQ(job_of({{"PMI_RANK", "0"}, {"PMI_JOBID", "7.0"}}), "PMI_JOBID=7.0");
}

TEST(LaunchedJob, IsNothingWhereAPartIsMissing) {
  EXPECT_EQ(job_of({{"SLURM_STEP_ID", "3"}}), "");
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "4540"}, {"SLURM_STEP_NODELIST", "n1"}}), "");
  EXPECT_EQ(job_of(changed(kOpenMpi, {{"PMIX_NAMESPACE", ""}})), "");
  EXPECT_EQ(job_of({{"MPI_LOCALRANKID", "0"}}), "") << "MPICH's has none";
  EXPECT_EQ(job_of({{"PET_NODE_RANK", "0"}}), "");
}

TEST(LaunchedJob, FitsIntoAHello) {
  const std::string job = job_of(changed(kOpenMpi, {{"PMIX_NAMESPACE", std::string(300, 'n')}}));
  EXPECT_EQ(job.size(), net::kMaxJobBytes);
}

TEST(LaunchedJob, DiffersFromOthersOfTheSameKindOnly) {
  const std::string slurm = job_of(kSlurm);
  EXPECT_FALSE(are_different_jobs(slurm, slurm));
  EXPECT_TRUE(are_different_jobs(slurm, job_of(changed(kSlurm, {{"SLURM_JOB_ID", "4541"}}))));
  EXPECT_TRUE(are_different_jobs(slurm, job_of(changed(kSlurm, {{"SLURM_STEP_ID", "4"}}))));
  EXPECT_FALSE(are_different_jobs(slurm, job_of(kOpenMpi)));
  EXPECT_FALSE(are_different_jobs(slurm, ""));
  EXPECT_FALSE(are_different_jobs("", slurm));
  EXPECT_FALSE(are_different_jobs("", ""));
}

}  // namespace
}  // namespace unisono::rendezvous
