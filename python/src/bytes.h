#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono::python {

/// A value in a store, in the form of torch.distributed.
using Bytes = std::vector<std::uint8_t>;

/// Converts text to bytes without a change.
[[nodiscard]] inline Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Converts bytes to text without a change.
[[nodiscard]] inline std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace unisono::python
