#include "unisono/base/loaded_mpi.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {
namespace {

// int MPI_Initialized(int*) has the same ABI in all MPI libraries.
using Question = int (*)(int*);

constexpr const char* kInitialized = "MPI_Initialized";

// Matches libmpi.so.40, libmpich.so.12, libmpi_abi.so.0, libmpi_cxx.so.40.
int note_if_mpi(dl_phdr_info* library, std::size_t /*size*/, void* paths) {
  const std::string_view name = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  if (name.substr(name.rfind('/') + 1).starts_with("libmpi")) {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(name);
  }
  return 0;
}

// Returns a handle of the loaded MPI library, null if there is none. mpi4py loads the library with
// symbols that are hidden from this library.
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

// Returns the answer of `question` about the loaded library; `otherwise` if no library is loaded.
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

// Open MPI's predefined handles are the addresses of such symbols.
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

std::optional<MpiImplementation> loaded_mpi() {
  if (mpi_state() == MpiState::kNone) {
    return std::nullopt;
  }
  return ask_loaded(is_open_mpi, false) ? MpiImplementation::kOpenMpi : MpiImplementation::kMpich;
}

}  // namespace unisono
