#include "unisono/base/loaded_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "unisono/base/error.h"

namespace unisono {

LoadedLibrary::LoadedLibrary(std::string file)
    : file_(std::move(file)), handle_(::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the C library keeps it for each thread.
    const char* const reason = ::dlerror();
    throw Error(ErrorCode::kNotFound, reason == nullptr ? file_ + " can't be loaded" : reason);
  }
}

void* LoadedLibrary::address_of(const char* name) const {
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr) {
    throw Error(ErrorCode::kNotFound, fmt::format("{} has no {}", file_, name));
  }
  return address;
}

}  // namespace unisono
