#include "unisono/rendezvous/launchers/mpi_implementation.h"

#include <optional>

#include <gtest/gtest.h>

#include "unisono/rendezvous/testing/launched_ranks.h"

namespace unisono::rendezvous {
namespace {

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
  // mpirun has started the launcher, not the rank.
  EXPECT_EQ(
      find_mpi_implementation(fake({{"OMPI_COMM_WORLD_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "a"}})),
      std::nullopt);
}

}  // namespace
}  // namespace unisono::rendezvous
