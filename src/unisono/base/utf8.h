#pragma once

#include <cstddef>
#include <string>
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

/// The bytes of the character of UTF-8 that the text begins with; 0 where it begins with none.
[[nodiscard]] constexpr std::size_t utf8_character_bytes(std::string_view text) {
  const auto byte_at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned int first = byte_at(0);
  if (first < 0x80) {
    return text.empty() ? 0 : 1;
  }
  if (first < 0xC2 || first > 0xF4) {
    return 0;
  }
  // Longer forms than needed, surrogates, and what is beyond the last character are none.
  const unsigned int least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned int most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(1) < least || byte_at(1) > most) {
    return 0;
  }
  const std::size_t n_bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 2; i < n_bytes; ++i) {
    if ((byte_at(i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  return n_bytes;
}

/// The text with a '?' for each byte that is no part of a character of UTF-8.
[[nodiscard]] inline std::string as_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_character_bytes(text);
    result += n_bytes == 0 ? std::string_view("?") : text.substr(0, n_bytes);
    text.remove_prefix(n_bytes == 0 ? 1 : n_bytes);
  }
  return result;
}

}  // namespace unisono
