#include "unisono/rendezvous/key_value_space/pmix_library.h"

#include <fmt/format.h>

#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"

namespace unisono::rendezvous {
namespace {

PmixLibrary load() {
  try {
    const LoadedLibrary file("libpmix.so.2");
    PmixLibrary library{};
    file.find("PMIx_Init", library.init);
    file.find("PMIx_Finalize", library.finalize);
    file.find("PMIx_Put", library.put);
    file.find("PMIx_Commit", library.commit);
    file.find("PMIx_Fence_nb", library.fence);
    file.find("PMIx_Get", library.get);
    file.find("PMIx_Error_string", library.describe);
    return library;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("PMIx can't be loaded: {}", error.what()));
  }
}

}  // namespace

const PmixLibrary& pmix_library() {
  static const PmixLibrary library = load();
  return library;
}

}  // namespace unisono::rendezvous
