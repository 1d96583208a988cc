#include "unisono/rendezvous/launchers/mpi_implementation.h"

#include <optional>

#include "unisono/base/config.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launchers/loaded_mpi.h"

namespace unisono::rendezvous {

const char* to_string(MpiImplementation implementation) noexcept {
  return implementation == MpiImplementation::kOpenMpi ? "Open MPI" : "MPICH";
}

std::optional<MpiImplementation> find_mpi_implementation(const Environment& environment) {
  if (!elastic_launcher(environment).empty()) {
    return std::nullopt;
  }
  if (const MpiState state = mpi_state(); state != MpiState::kNone) {
    return is_open_mpi_loaded() ? MpiImplementation::kOpenMpi : MpiImplementation::kMpich;
  }
  if (environment("OMPI_COMM_WORLD_RANK") || environment("PMIX_RANK")) {
    return MpiImplementation::kOpenMpi;
  }
  return environment("PMI_RANK") ? std::optional(MpiImplementation::kMpich) : std::nullopt;
}

}  // namespace unisono::rendezvous
