#include "unisono/rendezvous/launchers/launcher.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/net/hello.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/find_launch_info.h"

namespace unisono::rendezvous {
namespace {

// Maps a number to a port above the ephemeral ports (up to 60999 on Linux).
std::uint16_t port_of(std::uint64_t number) {
  constexpr std::uint64_t kFirstPort = 61'000;
  return static_cast<std::uint16_t>(kFirstPort + number % (65'536 - kFirstPort));
}

std::uint16_t port_of(std::string_view name) {
  return port_of(fnv1a(name));
}

// Returns std::nullopt, after a complaint, if the answer is unknown.
std::optional<bool> is_on_one_node(VariableReader& reader, const Launcher& launcher) {
  if (launcher.world_size == nullptr || launcher.local_world_size == nullptr) {
    return false;
  }
  const std::optional<int> all = reader.needed_int(launcher.world_size, 1);
  const std::optional<int> local = reader.optional_int(launcher.local_world_size, 1);
  return all ? std::optional(all == 1 || all == local) : std::nullopt;
}

// Returns loopback if all ranks are on a single node; otherwise the first host of the Slurm job,
// within a job; otherwise no host, and a problem that names the remedy.
MasterHost mpi_master_host(VariableReader& reader, const Launcher& launcher) {
  const std::optional<bool> is_one = is_on_one_node(reader, launcher);
  if (!is_one) {
    return {};
  }
  if (*is_one) {
    return {.address = net::loopback_host(), .is_on_one_node = true};
  }
  if (reader.is_set("SLURM_JOB_NODELIST")) {
    const std::vector<std::string> nodes = reader.nodes("SLURM_JOB_NODELIST");
    return {.address = nodes.empty() ? "" : nodes.front()};
  }
  return {.address = "",
          .problem = fmt::format("MASTER_ADDR is not set, and {} does not show that all ranks are "
                                 "on one node: set it for all ranks to the name of rank 0's node, "
                                 "and MASTER_PORT to a port that is free there",
                                 launcher.command)};
}

// Derives the port from the name of the job. Without a name: if all ranks are on a single node,
// from the pid of the process that started the ranks, otherwise from SLURM_JOB_ID. Returns
// std::nullopt if the process or the variable is missing.
std::optional<std::uint16_t> mpi_master_port(VariableReader& reader, const Launcher& launcher) {
  if (launcher.job != nullptr && reader.is_set(launcher.job)) {
    return port_of(reader.text(launcher.job));
  }
  if (is_on_one_node(reader, launcher).value_or(false)) {
    const std::optional<pid_t> starter = process_that_set(launcher.rank);
    return starter ? std::optional(port_of(static_cast<std::uint64_t>(*starter))) : std::nullopt;
  }
  const std::optional<int> slurm_job = reader.optional_int("SLURM_JOB_ID", 0);
  return slurm_job ? std::optional(port_of(static_cast<std::uint64_t>(*slurm_job))) : std::nullopt;
}

constexpr char kSlurmJob[] = "SLURM_JOB_ID";
constexpr char kSlurmStep[] = "SLURM_STEP_ID";

// Slurm's SLURM_MAX_NORMAL_STEP_ID: numbers from here on denote batch scripts, interactive shells
// and the like.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
constexpr std::int64_t kMaxId = std::numeric_limits<std::uint32_t>::max();

// Coprime to the number of ports and near the golden section: consecutive steps get distant ports,
// which are also distant from the first steps of the following jobs.
constexpr std::int64_t kStepStride = 2803;

// Returns false for batch scripts and shells of salloc. Both have variables of the job, including
// SLURM_PROCID=0, but are a single process whatever SLURM_NTASKS is.
bool is_slurm_task(const Environment& environment) {
  VariableReader reader(environment);
  const std::int64_t step = reader.number(kSlurmStep, 0, kMaxId, false).value_or(0);
  const bool is_in_step = reader.is_set(kSlurmStep) || reader.is_set("SLURM_STEP_NODELIST");
  return is_in_step && step < kFirstSpecialStep;
}

MasterHost slurm_master_host(VariableReader& reader, const Launcher& /*launcher*/) {
  const std::vector<std::string> nodes = reader.nodes("SLURM_STEP_NODELIST");
  return {.address = nodes.empty() ? "" : nodes.front(), .is_on_one_node = nodes.size() <= 1};
}

std::optional<std::uint16_t> slurm_master_port(VariableReader& reader,
                                               const Launcher& /*launcher*/) {
  return slurm_port(reader);
}

// Pods of Kubeflow Trainer have only torchrun's options, as PET_* variables: a program that is
// started without torchrun is the only rank of the pod. (The older PyTorchJob sets RANK and
// WORLD_SIZE itself.)

MasterHost kubeflow_master_host(VariableReader& reader, const Launcher& /*launcher*/) {
  // May also be "auto", "cpu" or "gpu": torchrun then chooses the number.
  const std::string n_ranks =
      reader.is_set("PET_NPROC_PER_NODE") ? reader.text("PET_NPROC_PER_NODE") : "1";
  if (n_ranks.find_first_not_of("0123456789") == std::string::npos && n_ranks != "1") {
    reader.complain(
        fmt::format("PET_NPROC_PER_NODE=\"{}\" asks for that many ranks in each pod, and this "
                    "program was started once: start it by torchrun, or ask for 1 (numProcPerNode)",
                    n_ranks));
  }
  return {.address = reader.host("PET_MASTER_ADDR", "PET_MASTER_PORT")};
}

std::optional<std::uint16_t> kubeflow_master_port(VariableReader& reader,
                                                  const Launcher& /*launcher*/) {
  return reader.port("PET_MASTER_PORT");
}

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
constexpr char kPodRank[] = "PET_NODE_RANK";

// mpirun comes before Slurm: within a Slurm job mpirun starts daemons by srun, and the ranks
// inherit the daemons' variables. PMI and PMIx come after Slurm, because srun sets those variables
// too.
constexpr std::array<Launcher, 6> kLaunchers{{
    {.name = "Open MPI",
     .command = "Open MPI's mpirun",
     .rank = kOpenMpiRank,
     .world_size = kOpenMpiSize,
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE",
     .has_started = is_any_set<kOpenMpiRank, kOpenMpiSize>,
     .master_host = mpi_master_host,
     .master_port = mpi_master_port},
    {.name = "MPICH or Intel MPI",
     .command = "mpirun of MPICH or Intel MPI",
     .rank = kPmiRank,
     .world_size = kPmiSize,
     .local_rank = kHydraLocalRank,
     .local_world_size = kHydraLocalSize,
     .job = "I_MPI_HYDRA_UUID",
     .has_started = is_any_set<kHydraLocalRank, kHydraLocalSize>,
     .master_host = mpi_master_host,
     .master_port = mpi_master_port},
    {.name = "Slurm",
     .command = "srun",
     .rank = "SLURM_PROCID",
     .world_size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .job = kSlurmJob,
     .step = kSlurmStep,
     .has_started = is_slurm_task,
     .master_host = slurm_master_host,
     .master_port = slurm_master_port},
    {.name = "PMI",
     .command = "a launcher with PMI",
     .rank = kPmiRank,
     .world_size = kPmiSize,
     .local_rank = "PMI_LOCAL_RANK",
     .local_world_size = "PMI_LOCAL_SIZE",
     .job = "PMI_JOBID",
     .has_started = is_any_set<kPmiRank, kPmiSize>,
     .master_host = mpi_master_host,
     .master_port = mpi_master_port},
    {.name = "PMIx",
     .command = "a launcher with PMIx, as prterun,",
     .rank = kPmixRank,
     .job = "PMIX_NAMESPACE",
     .has_started = is_any_set<kPmixRank>,
     .master_host = mpi_master_host,
     .master_port = mpi_master_port},
    {.name = "Kubeflow Trainer",
     .command = "Kubeflow Trainer",
     .rank = kPodRank,
     .world_size = "PET_NNODES",
     .has_key_space = false,
     .has_started = is_any_set<kPodRank>,
     .master_host = kubeflow_master_host,
     .master_port = kubeflow_master_port},
}};

std::string first_variable(const std::string& job) {
  return job.substr(0, job.find('='));
}

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

// 61000 + SLURM_JOB_ID % 4536, like NVIDIA's container hook, for the first step of a job. Later
// steps, which may run at the same time, get distant ports; but in a container of PyTorch
// (PYTORCH_VERSION) all steps get the same port, because other processes there may use the hook's
// port. A batch script counts as the first step.
std::optional<std::uint16_t> slurm_port(VariableReader& reader) {
  const std::optional<std::int64_t> job = reader.number(kSlurmJob, 0, kMaxId, true);
  const std::int64_t step = reader.is_set("PYTORCH_VERSION")
                                ? 0
                                : reader.number(kSlurmStep, 0, kMaxId, false).value_or(0);
  if (!job) {
    return std::nullopt;
  }
  return port_of(
      static_cast<std::uint64_t>(*job + kStepStride * (step < kFirstSpecialStep ? step : 0)));
}

std::string launched_job(const Environment& environment, const Launcher& launcher) {
  std::string job;
  for (const char* const name : {launcher.job, launcher.step}) {
    if (name == nullptr) {
      continue;
    }
    const std::optional<std::string> value = environment(name);
    if (!value || value->empty()) {
      return "";
    }
    job += fmt::format("{}{}={}", job.empty() ? "" : ", ", name, *value);
  }
  return job.substr(0, net::kMaxJobBytes);
}

bool are_different_jobs(const std::string& one, const std::string& other) {
  return !one.empty() && !other.empty() && one != other &&
         first_variable(one) == first_variable(other);
}

std::optional<MpiImplementation> find_mpi_implementation(const Environment& environment) {
  if (!elastic_launcher(environment).empty()) {
    return std::nullopt;
  }
  if (const std::optional<MpiImplementation> loaded = loaded_mpi()) {
    return loaded;
  }
  if (environment("OMPI_COMM_WORLD_RANK") || environment("PMIX_RANK")) {
    return MpiImplementation::kOpenMpi;
  }
  return environment("PMI_RANK") ? std::optional(MpiImplementation::kMpich) : std::nullopt;
}

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
     "launchers with PMI: mpirun of MPICH or Intel MPI, srun --mpi=pmi2",
     "this process's rank"},
    {"PMI_SIZE", "launchers with PMI", "number of ranks"},
    {"PMI_LOCAL_RANK", "launchers with PMI", "its rank among those of its node"},
    {"PMI_LOCAL_SIZE", "launchers with PMI", "number of ranks on its node"},
    {"PMI_JOBID", "launchers with PMI", "name of the job"},
    {"PMIX_RANK", "launchers with PMIx: Open MPI's mpirun, srun --mpi=pmix", "its rank"},
    {"PMIX_NAMESPACE", "launchers with PMIx", "name of the job"},
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
