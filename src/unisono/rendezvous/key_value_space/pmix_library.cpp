#include "unisono/rendezvous/key_value_space/pmix_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "unisono/base/error.h"

namespace unisono::rendezvous {
namespace {

constexpr const char* kFile = "libpmix.so.2";

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw Error(ErrorCode::kNotFound, fmt::format("{} has no {}", kFile, name));
  }
}

PmixLibrary load() {
  void* const handle = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the C library keeps it for each thread.
    const char* const reason = ::dlerror();
    throw Error(ErrorCode::kNotFound,
                fmt::format("PMIx can't be loaded: {}", reason == nullptr ? kFile : reason));
  }
  PmixLibrary library{};
  find(handle, "PMIx_Init", library.init);
  find(handle, "PMIx_Finalize", library.finalize);
  find(handle, "PMIx_Put", library.put);
  find(handle, "PMIx_Commit", library.commit);
  find(handle, "PMIx_Fence_nb", library.fence);
  find(handle, "PMIx_Get", library.get);
  find(handle, "PMIx_Error_string", library.describe);
  return library;
}

}  // namespace

const PmixLibrary& pmix_library() {
  static const PmixLibrary library = load();
  return library;
}

}  // namespace unisono::rendezvous
