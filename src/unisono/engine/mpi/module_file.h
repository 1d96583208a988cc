#pragma once

#include <string>
#include <vector>

#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::engine::mpi {

/// The MPIs for which a module was built and lies where find_module() looks.
[[nodiscard]] std::vector<rendezvous::MpiImplementation> built_modules();

/// The file of that MPI's module: beside the library or program that this code is in, in
/// lib/unisono beside its folder, where it was installed, or where it was built. Empty if there is
/// none.
[[nodiscard]] std::string find_module(rendezvous::MpiImplementation implementation);

/// What to install so that there is a module: "libopenmpi-dev".
[[nodiscard]] const char* package_of(rendezvous::MpiImplementation implementation);

}  // namespace unisono::engine::mpi
