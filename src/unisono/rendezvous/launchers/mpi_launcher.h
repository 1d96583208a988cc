#pragma once

#include <cstdint>
#include <optional>

#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

// The rows of launchers() that start programs of MPI. They know the ranks but no place to meet.

/// Loopback, where all ranks are on one node; else the first host of the Slurm job, within one;
/// else none, with what to set.
[[nodiscard]] MasterHost mpi_master_host(VariableReader& reader, const Launcher& launcher);

/// False where all ranks are on one node. True where that is not known.
[[nodiscard]] bool mpi_is_on_several_nodes(VariableReader& reader, const Launcher& launcher);

/// From what names the job; where nothing does, and all ranks are on one node, from the number of
/// the process that started them, which is looked for in /proc.
[[nodiscard]] std::optional<std::uint16_t> mpi_master_port(VariableReader& reader,
                                                           const Launcher& launcher);

}  // namespace unisono::rendezvous
