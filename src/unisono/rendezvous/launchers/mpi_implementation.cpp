#include "unisono/rendezvous/launchers/mpi_implementation.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/rendezvous/find_launch_info.h"

namespace unisono::rendezvous {
namespace {

// int MPI_Initialized(int*): the same in all MPIs, unlike most of what they have.
using Question = int (*)(int*);

constexpr const char* kInitialized = "MPI_Initialized";

// libmpi.so.40, libmpich.so.12, libmpi_abi.so.0, libmpi_cxx.so.40.
int note_if_mpi(dl_phdr_info* library, std::size_t /*size*/, void* paths) {
  const std::string_view name = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  if (name.substr(name.rfind('/') + 1).starts_with("libmpi")) {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(name);
  }
  return 0;
}

// Null if there is none. Symbols may be hidden from this library: mpi4py loads its MPI so.
void* find_library() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(note_if_mpi, &paths);
  for (const std::string& path : paths) {
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr && ::dlsym(library, kInitialized) != nullptr) {
      return library;
    }
    if (library != nullptr) {
      ::dlclose(library);
    }
  }
  return nullptr;
}

bool ask(void* library, const char* name) {
  const auto question = reinterpret_cast<Question>(::dlsym(library, name));
  int answer = 0;
  return question != nullptr && question(&answer) == 0 && answer != 0;
}

MpiState ask_state(void* library) {
  if (ask(library, "MPI_Finalized")) {
    return MpiState::kFinished;
  }
  return ask(library, kInitialized) ? MpiState::kRunning : MpiState::kToCome;
}

// What `question` answers of the loaded MPI; `otherwise` if there is none.
template <class Answer>
Answer ask_loaded(Answer (*question)(void* library), Answer otherwise) {
  if (::dlsym(RTLD_DEFAULT, kInitialized) != nullptr) {
    return question(RTLD_DEFAULT);
  }
  void* const library = find_library();
  if (library == nullptr) {
    return otherwise;
  }
  const Answer answer = question(library);
  ::dlclose(library);
  return answer;
}

// Its handles are pointers to such symbols.
bool is_open_mpi(void* library) {
  return ::dlsym(library, "ompi_mpi_comm_world") != nullptr;
}

}  // namespace

MpiState mpi_state() {
  return ask_loaded(ask_state, MpiState::kNone);
}

const char* to_string(MpiImplementation implementation) noexcept {
  return implementation == MpiImplementation::kOpenMpi ? "Open MPI" : "MPICH";
}

std::optional<MpiImplementation> find_mpi_implementation(const Environment& environment) {
  if (!elastic_launcher(environment).empty()) {
    return std::nullopt;
  }
  if (mpi_state() != MpiState::kNone) {
    return ask_loaded(is_open_mpi, false) ? MpiImplementation::kOpenMpi : MpiImplementation::kMpich;
  }
  if (environment("OMPI_COMM_WORLD_RANK") || environment("PMIX_RANK")) {
    return MpiImplementation::kOpenMpi;
  }
  return environment("PMI_RANK") ? std::optional(MpiImplementation::kMpich) : std::nullopt;
}

}  // namespace unisono::rendezvous
