#include "unisono/rendezvous/launchers/launcher_variables.h"

#include <array>
#include <span>

namespace unisono::rendezvous {
namespace {

constexpr const char* kTorchrun = "the user, unisono run, torchrun or the PyTorchJob operator";
constexpr const char* kLauncher = "unisono run or torchrun";
constexpr const char* kOpenMpi = "Open MPI's mpirun";
constexpr const char* kHydra = "mpirun of MPICH or Intel MPI";
constexpr const char* kSlurm = "srun, and Slurm for batch scripts";
constexpr const char* kSrun = "srun";
constexpr const char* kKubeflow = "Kubeflow Trainer and the PyTorchJob operator";

constexpr std::array kRows = std::to_array<LauncherVariable>({
    {"RANK", kTorchrun, "this process's rank"},
    {"WORLD_SIZE", kTorchrun, "number of ranks"},
    {"LOCAL_RANK", kTorchrun, "its rank among those of its node"},
    {"LOCAL_WORLD_SIZE", kTorchrun, "number of ranks on its node"},
    {"MASTER_ADDR", kTorchrun, "rank 0's machine, where the ranks meet"},
    {"MASTER_PORT", kTorchrun, "the port there"},
    {"GROUP_RANK", kLauncher, "number of the node"},
    {"TORCHELASTIC_USE_AGENT_STORE", kLauncher, "whether the launcher serves the store"},
    {"TORCHELASTIC_RUN_ID", kLauncher, "name of the job"},
    {"OMPI_COMM_WORLD_RANK", kOpenMpi, "this process's rank"},
    {"OMPI_COMM_WORLD_SIZE", kOpenMpi, "number of ranks"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", kOpenMpi, "its rank among those of its node"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", kOpenMpi, "number of ranks on its node"},
    {"MPI_LOCALRANKID", kHydra, "its rank among those of its node"},
    {"MPI_LOCALNRANKS", kHydra, "number of ranks on its node"},
    {"I_MPI_HYDRA_UUID", "mpirun of Intel MPI", "name of the job"},
    {"SLURM_JOB_ID", kSlurm, "number of the job"},
    {"SLURM_STEP_ID", kSrun, "number of the step within the job; not there in a batch script"},
    {"SLURM_PROCID", kSlurm, "this task's rank; always 0 in a batch script"},
    {"SLURM_NTASKS", kSlurm, "number of tasks"},
    {"SLURM_LOCALID", kSlurm, "its rank among those of its node"},
    {"SLURM_NODEID", kSlurm, "number of its node"},
    {"SLURM_NNODES", kSlurm, "number of nodes"},
    {"SLURM_STEP_NODELIST", kSrun, "the step's nodes, rank 0's first"},
    {"SLURM_JOB_NODELIST", kSlurm, "the job's nodes"},
    {"SLURM_STEP_TASKS_PER_NODE", kSrun, "number of tasks on each of the step's nodes"},
    {"SLURM_NTASKS_PER_NODE", kSlurm, "number of tasks asked for on each node"},
    {"SLURM_CPUS_PER_TASK", kSlurm, "cores asked for for each task"},
    {"SLURM_CPUS_ON_NODE", kSlurm, "cores on its node"},
    {"PMI_RANK",
     "launchers that speak PMI: mpirun of MPICH or Intel MPI, srun --mpi=pmi2",
     "this process's rank"},
    {"PMI_SIZE", "launchers that speak PMI", "number of ranks"},
    {"PMI_LOCAL_RANK", "launchers that speak PMI", "its rank among those of its node"},
    {"PMI_LOCAL_SIZE", "launchers that speak PMI", "number of ranks on its node"},
    {"PMI_JOBID", "launchers that speak PMI", "name of the job"},
    {"PMIX_RANK", "launchers that speak PMIx: Open MPI's mpirun, srun --mpi=pmix", "its rank"},
    {"PMIX_NAMESPACE", "launchers that speak PMIx", "name of the job"},
    {"PET_NODE_RANK", kKubeflow, "torchrun's --node_rank: number of the pod"},
    {"PET_NNODES", kKubeflow, "torchrun's --nnodes: number of pods"},
    {"PET_NPROC_PER_NODE", kKubeflow, "torchrun's --nproc_per_node: ranks in each pod"},
    {"PET_MASTER_ADDR", kKubeflow, "torchrun's --master_addr: the first pod"},
    {"PET_MASTER_PORT", kKubeflow, "torchrun's --master_port"},
    {"PYTORCH_VERSION",
     "NVIDIA's container of PyTorch",
     "in it MASTER_PORT depends on the Slurm job alone"},
});

}  // namespace

std::span<const LauncherVariable> launcher_variables() {
  return kRows;
}

}  // namespace unisono::rendezvous
