#pragma once

#include <cstdint>
#include <optional>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

// The Slurm row of launchers(): what srun tells a task.

/// True for a task of srun. Not for a batch script, nor for a shell of salloc: they have variables
/// of the job, SLURM_PROCID=0 among them, but are one process whatever SLURM_NTASKS is.
[[nodiscard]] bool is_slurm_task(const Environment& environment);

/// True where a job's variables are there without a task's.
[[nodiscard]] bool is_slurm_script(const Environment& environment);

/// The first host of the step.
[[nodiscard]] MasterHost slurm_master_host(VariableReader& reader, const Launcher& launcher);

/// True for a step of several nodes.
[[nodiscard]] bool slurm_is_on_several_nodes(VariableReader& reader, const Launcher& launcher);

/// 61000 + SLURM_JOB_ID % 4536, as NVIDIA's container hook has it, for the first step of a job.
/// Steps of one job, which may run at the same time, get ports far from each other; in a container
/// of PyTorch (PYTORCH_VERSION) they don't, since other processes there may follow the hook.
[[nodiscard]] std::optional<std::uint16_t> slurm_master_port(VariableReader& reader,
                                                             const Launcher& launcher);

}  // namespace unisono::rendezvous
