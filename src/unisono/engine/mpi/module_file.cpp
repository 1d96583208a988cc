#include "unisono/engine/mpi/module_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "unisono/rendezvous/launchers/mpi_implementation.h"

namespace unisono::engine::mpi {
namespace {

using rendezvous::MpiImplementation;

constexpr std::array kImplementations{MpiImplementation::kOpenMpi, MpiImplementation::kMpich};

// The file that this code was linked into, as it was loaded.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&package_of), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  // A program may be called by its bare name.
  return error ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path()
               : file.parent_path();
}

}  // namespace

std::vector<MpiImplementation> built_modules() {
  std::vector<MpiImplementation> built;
  for (const MpiImplementation implementation : kImplementations) {
    if (!find_module(implementation).empty()) {
      built.push_back(implementation);
    }
  }
  return built;
}

std::string find_module(MpiImplementation implementation) {
  const std::string name = fmt::format(
      "libunisono_mpi_{}.so", implementation == MpiImplementation::kOpenMpi ? "openmpi" : "mpich");
  const std::filesystem::path own = own_folder();
  const std::array<std::filesystem::path, 4> folders{
      own, own.parent_path() / "lib" / "unisono", UNISONO_MPI_INSTALLED, UNISONO_MPI_BUILT};
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (folder.is_absolute() && std::filesystem::is_regular_file(folder / name, error)) {
      return folder / name;
    }
  }
  return "";
}

const char* package_of(MpiImplementation implementation) {
  return implementation == MpiImplementation::kOpenMpi ? "libopenmpi-dev" : "libmpich-dev";
}

}  // namespace unisono::engine::mpi
