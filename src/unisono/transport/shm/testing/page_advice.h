#pragma once

#include <cstdint>
#include <fstream>
#include <ios>
#include <optional>
#include <sstream>
#include <string>

namespace unisono::shm::testing {

/// Returns true if the kernel marks the page at `address` for huge pages; std::nullopt if the
/// kernel does not report this, as in an emulator.
inline std::optional<bool> is_to_be_huge(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_inside = begin <= wanted && wanted < end;
    } else if (is_inside && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return std::nullopt;
}

}  // namespace unisono::shm::testing
