#pragma once

#include <cstdint>
#include <optional>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// What this process's own MPI library may do with the launcher's key space, which there is but
/// once for each process.
enum class MpiState {
  kNone,      ///< No MPI is loaded.
  kToCome,    ///< One is loaded, and MPI_Init may be called later.
  kRunning,   ///< Between MPI_Init and MPI_Finalize.
  kFinished,  ///< After MPI_Finalize.
};

/// Looks at the shared libraries of this process, and asks its MPI library. One that is linked
/// statically is seen only where the program exports its symbols.
[[nodiscard]] MpiState mpi_state();

/// The families of MPI libraries. What is compiled for one does not run with the other.
enum class MpiImplementation : std::uint8_t { kOpenMpi, kMpich };

/// "Open MPI", "MPICH".
[[nodiscard]] const char* to_string(MpiImplementation implementation) noexcept;

/// The MPI whose rank this process is: the one that it has loaded, else the one whose launcher has
/// started it: mpirun, or Slurm's srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH). Nothing where
/// there is none, and for ranks that `unisono run` or torchrun has started within one.
[[nodiscard]] std::optional<MpiImplementation> find_mpi_implementation(
    const Environment& environment);

}  // namespace unisono::rendezvous
