#include "unisono/rendezvous/launchers/launcher.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/fnv.h"
#include "unisono/net/hello.h"
#include "unisono/net/loopback.h"
#include "unisono/rendezvous/launchers/launcher_process.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

// One of the ports above those that systems give out by themselves (on Linux up to 60999).
std::uint16_t port_of(std::uint64_t number) {
  constexpr std::uint64_t kFirstPort = 61'000;
  return static_cast<std::uint16_t>(kFirstPort + number % (65'536 - kFirstPort));
}

std::uint16_t port_of(std::string_view name) {
  return port_of(fnv1a(name));
}

// Nothing after a complaint, where it can't be known.
std::optional<bool> is_on_one_node(VariableReader& reader, const Launcher& launcher) {
  if (launcher.world_size == nullptr || launcher.local_world_size == nullptr) {
    return false;
  }
  const std::optional<int> all = reader.needed_int(launcher.world_size, 1);
  const std::optional<int> local = reader.optional_int(launcher.local_world_size, 1);
  return all ? std::optional(all == 1 || all == local) : std::nullopt;
}

// Loopback, where all ranks are on one node; else the first host of the Slurm job, within one; else
// none, with what to set.
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
          .problem = fmt::format("MASTER_ADDR is not set, and {} does not say that all ranks are "
                                 "on one node: set it for all ranks to the name of rank 0's node, "
                                 "and MASTER_PORT to a port that is free there",
                                 launcher.command)};
}

// From what names the job; where nothing does, and all ranks are on one node, from the number of
// the process that started them.
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

// Slurm's SLURM_MAX_NORMAL_STEP_ID: from here on numbers stand for batch scripts, interactive
// shells and the like.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
constexpr std::int64_t kMaxId = std::numeric_limits<std::uint32_t>::max();

// Coprime to the number of ports, and about the golden section of it: steps that follow each other
// are far from each other, and from the first steps of the jobs that follow.
constexpr std::int64_t kStepStride = 2803;

// Not for a batch script, nor for a shell of salloc: they have variables of the job, SLURM_PROCID=0
// among them, but are one process whatever SLURM_NTASKS is.
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

// Kubeflow Trainer's pods have torchrun's options as PET_*, and nothing else: a program that is
// started without torchrun is the one rank of its pod. (The older PyTorchJob sets RANK and
// WORLD_SIZE itself.)

MasterHost kubeflow_master_host(VariableReader& reader, const Launcher& /*launcher*/) {
  // Or "auto", "cpu", "gpu": as many as torchrun finds fit.
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
     .command = "a launcher that speaks PMI",
     .rank = kPmiRank,
     .world_size = kPmiSize,
     .local_rank = "PMI_LOCAL_RANK",
     .local_world_size = "PMI_LOCAL_SIZE",
     .job = "PMI_JOBID",
     .has_started = is_any_set<kPmiRank, kPmiSize>,
     .master_host = mpi_master_host,
     .master_port = mpi_master_port},
    {.name = "PMIx",
     .command = "a launcher that speaks PMIx, as prterun,",
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

// 61000 + SLURM_JOB_ID % 4536, as NVIDIA's container hook has it, for the first step of a job.
// Steps of one job, which may run at the same time, get ports far from each other; in a container
// of PyTorch (PYTORCH_VERSION) they don't, since other processes there may follow the hook. A batch
// script counts as the first step.
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

}  // namespace unisono::rendezvous
