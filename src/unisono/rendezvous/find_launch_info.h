#pragma once

#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// Finds out which rank this process is and where the ranks meet, whoever started it.
///
/// What `rank` and `world_size` give holds, -1 being nothing; then MASTER_ADDR, MASTER_PORT, RANK,
/// WORLD_SIZE and LOCAL_RANK, each that is set; the rest comes from the variables of the launcher,
/// the first of: Open MPI's mpirun, MPICH's or Intel MPI's, Slurm's srun, others that speak PMI or
/// PMIx, Kubeflow Trainer. A batch script of Slurm is no task of srun.
///
/// Rank 0 of 0, as programs of MPI give it, is nothing too, where WORLD_SIZE is set or a launcher
/// is found.
///
/// Under mpirun on one node the ranks meet on its loopback, at a port above 61000 that the job's
/// name or the process that started it gives; for the latter /proc is read. On several nodes
/// publish_master_address() has rank 0 tell the place, where the launcher has a key space.
///
/// Throws Error(kInvalidArgument) with one message that names everything that is missing or wrong,
/// its value and who sets it; where there is nothing, what was looked for.
[[nodiscard]] LaunchInfo find_launch_info(const Environment& environment,
                                          int rank = -1,
                                          int world_size = -1);

/// The launcher that started this process, of those whose variables find_launch_info() looks for:
/// "Slurm", ...; empty if none did.
[[nodiscard]] std::string launcher_name(const Environment& environment);

/// Of the launchers that set torchrun's variables the one that started this process: "torchrun",
/// "unisono run"; empty if none did.
[[nodiscard]] std::string elastic_launcher(const Environment& environment);

/// True where this process was started as a rank: RANK or WORLD_SIZE is set, well or badly, or a
/// launcher started several. (A shell that srun started is one process, and wants to start ranks.)
///
/// Throws as find_launch_info() does where a launcher's variables are wrong.
[[nodiscard]] bool is_in_job(const Environment& environment);

/// True where a launcher has started several processes, this one among them, and nobody else has
/// made it a rank: each may then start ranks of one job.
[[nodiscard]] bool has_launcher_of_several(const Environment& environment);

/// A variable for a process's environment.
struct Variable {
  std::string name;
  std::string value;
};

/// The variables of PyTorch's launcher that are not set, as find_launch_info() finds them:
/// MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, LOCAL_RANK, and, for tasks of Slurm of which a node
/// has several, OMP_NUM_THREADS=1. So does the hook that NVIDIA ships for containers of PyTorch
/// (pyxis, enroot); for programs that read them themselves.
///
/// Throws as find_launch_info() does, also where rank 0 is to choose the place: see
/// publish_master_address().
[[nodiscard]] std::vector<Variable> missing_torch_variables(const Environment& environment);

}  // namespace unisono::rendezvous
