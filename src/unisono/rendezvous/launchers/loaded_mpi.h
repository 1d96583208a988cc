#pragma once

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

/// Whether the MPI that is loaded is Open MPI, or made of it.
[[nodiscard]] bool is_open_mpi_loaded();

}  // namespace unisono::rendezvous
