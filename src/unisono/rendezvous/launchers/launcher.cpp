#include "unisono/rendezvous/launchers/launcher.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/fnv.h"
#include "unisono/rendezvous/launchers/kubeflow_launcher.h"
#include "unisono/rendezvous/launchers/mpi_launcher.h"
#include "unisono/rendezvous/launchers/slurm_launcher.h"

namespace unisono::rendezvous {
namespace {

template <const char*... names>
bool is_any_set(const Environment& environment) {
  return (environment(names).has_value() || ...);
}

constexpr char kOpenMpiRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kOpenMpiSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kHydraLocalRank[] = "MPI_LOCALRANKID";
constexpr char kHydraLocalSize[] = "MPI_LOCALNRANKS";
constexpr char kPmiRank[] = "PMI_RANK";
constexpr char kPmiSize[] = "PMI_SIZE";
constexpr char kPmixRank[] = "PMIX_RANK";

// mpirun stands before Slurm: within a job it starts its daemons by srun, and the ranks inherit
// what srun tells these. PMI and PMIx stand behind Slurm: srun sets their variables, too.
constexpr std::array<Launcher, 6> kLaunchers{{
    {.name = "Open MPI",
     .command = "Open MPI's mpirun",
     .rank = kOpenMpiRank,
     .world_size = kOpenMpiSize,
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE",
     .step = nullptr,
     .has_started = is_any_set<kOpenMpiRank, kOpenMpiSize>,
     .master_host = mpi_master_host,
     .is_on_several_nodes = mpi_is_on_several_nodes,
     .master_port = mpi_master_port},
    {.name = "MPICH or Intel MPI",
     .command = "mpirun of MPICH or Intel MPI",
     .rank = kPmiRank,
     .world_size = kPmiSize,
     .local_rank = kHydraLocalRank,
     .local_world_size = kHydraLocalSize,
     .job = "I_MPI_HYDRA_UUID",
     .step = nullptr,
     .has_started = is_any_set<kHydraLocalRank, kHydraLocalSize>,
     .master_host = mpi_master_host,
     .is_on_several_nodes = mpi_is_on_several_nodes,
     .master_port = mpi_master_port},
    {.name = "Slurm",
     .command = "srun",
     .rank = "SLURM_PROCID",
     .world_size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .local_world_size = nullptr,
     .job = "SLURM_JOB_ID",
     .step = "SLURM_STEP_ID",
     .has_started = is_slurm_task,
     .master_host = slurm_master_host,
     .is_on_several_nodes = slurm_is_on_several_nodes,
     .master_port = slurm_master_port},
    {.name = "PMI",
     .command = "a launcher that speaks PMI",
     .rank = kPmiRank,
     .world_size = kPmiSize,
     .local_rank = "PMI_LOCAL_RANK",
     .local_world_size = "PMI_LOCAL_SIZE",
     .job = "PMI_JOBID",
     .step = nullptr,
     .has_started = is_any_set<kPmiRank, kPmiSize>,
     .master_host = mpi_master_host,
     .is_on_several_nodes = mpi_is_on_several_nodes,
     .master_port = mpi_master_port},
    {.name = "PMIx",
     .command = "a launcher that speaks PMIx, as prterun,",
     .rank = kPmixRank,
     .world_size = nullptr,
     .local_rank = nullptr,
     .local_world_size = nullptr,
     .job = "PMIX_NAMESPACE",
     .step = nullptr,
     .has_started = is_any_set<kPmixRank>,
     .master_host = mpi_master_host,
     .is_on_several_nodes = mpi_is_on_several_nodes,
     .master_port = mpi_master_port},
    {.name = "Kubeflow Trainer",
     .command = "Kubeflow Trainer",
     .rank = "PET_NODE_RANK",
     .world_size = "PET_NNODES",
     .local_rank = nullptr,
     .local_world_size = nullptr,
     .job = nullptr,
     .step = nullptr,
     .has_started = is_kubeflow_pod,
     .master_host = kubeflow_master_host,
     .is_on_several_nodes = nullptr,
     .master_port = kubeflow_master_port},
}};

constexpr std::uint64_t kFirstPort = 61'000;
constexpr std::uint64_t kPorts = 65'536 - kFirstPort;

}  // namespace

std::span<const Launcher> launchers() {
  return kLaunchers;
}

const Launcher* find_launcher(const Environment& environment) {
  const auto* const found =
      std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Launcher& launcher) {
        return launcher.has_started(environment);
      });
  return found == kLaunchers.end() ? nullptr : found;
}

std::uint16_t port_of(std::uint64_t number) {
  return static_cast<std::uint16_t>(kFirstPort + number % kPorts);
}

std::uint16_t port_of(std::string_view name) {
  return port_of(fnv1a(name));
}

}  // namespace unisono::rendezvous
