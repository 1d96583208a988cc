#pragma once

#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

/// Determines this process's rank and the meeting point of the ranks, for any launcher.
///
/// Explicit values `rank` and `world_size` take precedence; -1 means not given. Then come
/// MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, each if set. The remaining values
/// come from the variables of the launcher: the first of Open MPI's mpirun, MPICH's or Intel MPI's
/// mpirun, Slurm's srun, other launchers with PMI or PMIx, Kubeflow Trainer. A batch script of
/// Slurm is not a task of srun.
///
/// Rank 0 of 0, as passed by MPI programs, also means not given if WORLD_SIZE is set or a launcher
/// is found.
///
/// Under mpirun on a single node the ranks meet on loopback, at a port above 61000 derived from the
/// job's name or from the process that started the ranks; the latter reads /proc. On several nodes,
/// publish_master_address() makes rank 0 publish the address if the launcher has a key space.
///
/// Throws Error(kInvalidArgument) with a single message that names all missing and invalid
/// variables, with values and the programs that set the variables; if no launcher is found, the
/// message lists the launchers that were searched for.
[[nodiscard]] LaunchInfo find_launch_info(const Environment& environment,
                                          int rank = -1,
                                          int world_size = -1);

/// Returns the name of the launcher that started this process, as found by find_launch_info(), e.g.
/// "Slurm". Returns "" without a known launcher.
[[nodiscard]] std::string launcher_name(const Environment& environment);

/// Returns the launcher that started this process with torchrun's variables: "torchrun", "unisono
/// run", or "" if neither did.
[[nodiscard]] std::string elastic_launcher(const Environment& environment);

/// Returns true if this process was started as a rank: RANK or WORLD_SIZE is set, even to an
/// invalid value, or a launcher has started several processes. (A shell started by srun is a single
/// process that may start ranks.)
///
/// Throws the errors of find_launch_info() if a launcher's variables are invalid.
[[nodiscard]] bool is_in_job(const Environment& environment);

/// Returns true if a launcher has started this process and others, and RANK is not set. Each of the
/// processes may then start ranks of the same job.
[[nodiscard]] bool has_launcher_of_several(const Environment& environment);

/// A variable for the environment of a process.
struct Variable {
  std::string name;
  std::string value;
};

/// Returns the variables of PyTorch's launcher that are not set, with the values of
/// find_launch_info(): MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, LOCAL_RANK, and
/// OMP_NUM_THREADS=1 for Slurm tasks that share a node. NVIDIA's hook for PyTorch containers
/// (pyxis, enroot) does the same. For programs that read the variables themselves.
///
/// Throws the errors of find_launch_info(), also if rank 0 is to choose the address: see
/// publish_master_address().
[[nodiscard]] std::vector<Variable> missing_torch_variables(const Environment& environment);

}  // namespace unisono::rendezvous
