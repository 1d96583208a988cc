#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono::crash {

/// What lies at an address of this process.
struct Mapping {
  bool is_executable = false;
  std::uintptr_t file_begin = 0;  ///< Where the first byte of its file is mapped.
  std::array<char, 512> path{};
  std::size_t n_path_bytes = 0;  ///< 0: memory without a file.

  [[nodiscard]] std::string_view file() const { return {path.data(), n_path_bytes}; }
};

/// Reads /proc/self/maps; false if nothing is mapped there. Async-signal-safe.
bool find_mapping(std::uintptr_t address, Mapping& mapping);

}  // namespace unisono::crash
