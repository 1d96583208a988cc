#pragma once

#include <cstddef>
#include <string_view>

namespace unisono {

/// The longest beginning of at most `max_bytes` that ends between characters of UTF-8. Where bytes
/// are no UTF-8, they are cut anywhere.
[[nodiscard]] constexpr std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes) {
  constexpr std::size_t kMostContinuations = 3;
  const auto is_continuation = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
  };
  if (text.size() <= max_bytes) {
    return text;
  }
  for (std::size_t n = 0; n <= kMostContinuations && n <= max_bytes; ++n) {
    if (!is_continuation(text[max_bytes - n])) {
      return text.substr(0, max_bytes - n);
    }
  }
  return text.substr(0, max_bytes);
}

}  // namespace unisono
