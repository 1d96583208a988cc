#include "unisono/base/describe_address.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace unisono {

std::string demangle(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && demangled != nullptr ? demangled.get() : name;
}

std::string describe_address(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return fmt::format("{}", address);
  }
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  std::string place = fmt::format("{}(+0x{:x})", info.dli_fname, offset);
  if (info.dli_sname == nullptr) {
    return place;
  }
  return fmt::format("{} in {}", demangle(info.dli_sname), place);
}

}  // namespace unisono
