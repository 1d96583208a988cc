#pragma once

#include <cstdint>
#include <optional>

namespace unisono {

/// State of the MPI library that this process has loaded. The state decides whether MPI uses the
/// process manager's key space, of which each process has a single one.
enum class MpiState {
  kNone,      ///< No MPI library is loaded.
  kToCome,    ///< An MPI library is loaded, and MPI_Init may be called later.
  kRunning,   ///< MPI_Init was called, MPI_Finalize was not.
  kFinished,  ///< MPI_Finalize was called.
};

/// Searches the shared libraries of this process for an MPI library and queries the state. Finds a
/// statically linked library only if the program exports the library's symbols.
[[nodiscard]] MpiState mpi_state();

/// Families of MPI libraries. A program that is compiled for one family does not run with the
/// other.
enum class MpiImplementation : std::uint8_t { kOpenMpi, kMpich };

/// Returns "Open MPI" or "MPICH".
[[nodiscard]] const char* to_string(MpiImplementation implementation) noexcept;

/// Returns the family of the MPI library that this process has loaded; std::nullopt if no MPI
/// library is loaded.
[[nodiscard]] std::optional<MpiImplementation> loaded_mpi();

}  // namespace unisono
