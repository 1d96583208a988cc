#pragma once

#include <cstdint>
#include <optional>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

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
