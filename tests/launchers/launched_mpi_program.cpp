// A rank of a program that uses an MPI in addition to the library, in two consecutive groups. Works
// with any MPI: the library is loaded at run time, and the called functions are the same in all
// implementations.
//
// launched_mpi_program LIBRARY before|after|never: time of MPI_Init relative to the groups.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "all_reduce_ones.h"

namespace {

template <class Function>
Function find(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) {
    throw std::runtime_error(::dlerror());
  }
  return reinterpret_cast<Function>(found);
}

void call_mpi(bool is_ok, const char* what) {
  if (!is_ok) {
    throw std::runtime_error(what);
  }
  std::printf("%s done\n", what);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) {
      throw std::runtime_error("LIBRARY before|after|never");
    }
    void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      throw std::runtime_error(::dlerror());
    }
    const auto init = find<int (*)(int*, char***)>(library, "MPI_Init");
    const auto finalize = find<int (*)()>(library, "MPI_Finalize");
    const std::string_view when = argv[2];
    if (when == "before") {
      call_mpi(init(nullptr, nullptr) == 0, "MPI_Init");
    }
    all_reduce_ones();
    all_reduce_ones();
    if (when == "after") {
      call_mpi(init(nullptr, nullptr) == 0, "MPI_Init");
    }
    if (when != "never") {
      call_mpi(finalize() == 0, "MPI_Finalize");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launched_mpi_program: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
