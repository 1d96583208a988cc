#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/loaded_mpi.h"
#include "unisono/rendezvous/launchers/variables.h"

namespace unisono::rendezvous {

struct Launcher;

/// Location of rank 0.
struct MasterHost {
  std::string address = {};     ///< Empty after a complaint, or if `problem` is set.
  bool is_on_one_node = false;  ///< False if unknown.
  /// The complaint to make if rank 0 cannot publish its address in the launcher's key space.
  std::string problem = {};
};

/// The variables by which a launcher assigns a rank to a process. Each launcher is a row in
/// launcher.cpp.
struct Launcher {
  const char* name;
  const char* command;  ///< The program that sets the variables, for messages.
  /// Names of the variables; null if the launcher does not set the variable.
  const char* rank = nullptr;
  const char* world_size = nullptr;
  const char* local_rank = nullptr;
  const char* local_world_size = nullptr;
  const char* job = nullptr;  ///< Identifies the job among the jobs of a machine.
  /// Identifies a part of the job, if a job may have several parts with their own ranks.
  const char* step = nullptr;
  bool has_key_space = true;  ///< True if the processes may have a key space.
  bool (*has_started)(const Environment& environment);
  MasterHost (*master_host)(VariableReader& reader, const Launcher& launcher);
  /// Returns std::nullopt if the launcher defines no port.
  std::optional<std::uint16_t> (*master_port)(VariableReader& reader, const Launcher& launcher);
};

/// All launchers in the order of the search: a launcher that is started by another comes first.
[[nodiscard]] std::span<const Launcher> launchers();

/// Returns the launcher that started a process with this environment; null if no launcher did.
[[nodiscard]] const Launcher* find_launcher(const Environment& environment);

/// Returns the port at which the ranks of this Slurm job step meet. Returns std::nullopt, after a
/// complaint to `reader`, if SLURM_JOB_ID is not set.
[[nodiscard]] std::optional<std::uint16_t> slurm_port(VariableReader& reader);

/// Returns a name that distinguishes the job from the launcher's other jobs: "SLURM_JOB_ID=4540,
/// SLURM_STEP_ID=3". Equal in all processes of the job. Empty if the launcher does not identify
/// jobs.
[[nodiscard]] std::string launched_job(const Environment& environment, const Launcher& launcher);

/// Returns true if both names use the same variables and differ. Jobs of different launchers cannot
/// be compared: returns false.
[[nodiscard]] bool are_different_jobs(const std::string& one, const std::string& other);

/// Returns the MPI implementation of this rank: that of the loaded library, or else that of the
/// launcher: mpirun, or Slurm's srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH). Returns
/// std::nullopt for other processes, and for ranks that `unisono run` or torchrun has started
/// within an MPI job.
[[nodiscard]] std::optional<MpiImplementation> find_mpi_implementation(
    const Environment& environment);

}  // namespace unisono::rendezvous
