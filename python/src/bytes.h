#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono::python {

/// A value in a store, as torch.distributed has it.
using Bytes = std::vector<std::uint8_t>;

[[nodiscard]] inline Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

[[nodiscard]] inline std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace unisono::python
