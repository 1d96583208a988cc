#pragma once

#include <cstddef>
#include <string>

namespace unisono::test {

/// Returns the value that process `name` sets in step `step`. The kernel needs a while for long
/// values, so a kill can interrupt the write.
inline std::string payload(const std::string& name, int step, std::size_t n_large_bytes) {
  const std::string mark = name + ":" + std::to_string(step) + ";";
  const std::size_t n_bytes = step % 2 == 0 ? n_large_bytes : mark.size();
  std::string value;
  while (value.size() < n_bytes) {
    value += mark;
  }
  return value;
}

}  // namespace unisono::test
