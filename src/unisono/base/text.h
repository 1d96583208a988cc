#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

/// Returns the longest prefix of at most `max_bytes` that ends between UTF-8 characters. A text
/// that is not UTF-8 is cut at any byte.
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

/// Returns the length in bytes of the UTF-8 character at the beginning of the text; 0 if the text
/// does not begin with a valid character.
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
  // Overlong forms, surrogates, and code points above U+10FFFF are invalid.
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

/// Returns the text with a '?' for each byte that is not part of a valid UTF-8 character.
[[nodiscard]] inline std::string as_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_character_bytes(text);
    result += n_bytes == 0 ? std::string_view("?") : text.substr(0, n_bytes);
    text.remove_prefix(n_bytes == 0 ? 1 : n_bytes);
  }
  return result;
}

/// Reads a text line by line. All text files that users write are read through this class.
///
/// Lines end in LF or CR LF. A UTF-8 byte order mark is skipped. Empty lines at the end of the text
/// are not returned. Not thread-safe.
class TextLines {
 public:
  /// Fills the span from the text's current position; returns the number of bytes, 0 at the end.
  using Read = std::function<std::size_t(std::span<std::byte>)>;

  /// A file with a longer line is rejected as not being text.
  static constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

  /// `name` is the path of the file, for error messages.
  TextLines(std::string name, Read read);

  /// Returns the next line without its line end, or std::nullopt at the end of the text.
  ///
  /// Throws Error(kCorruptData), with file and line, for UTF-16 or UTF-32, a NUL byte, a CR without
  /// LF, and a line of more than kMaxLineBytes. Errors of `read` pass through.
  [[nodiscard]] std::optional<std::string> next();

  /// Returns the number of the last line that next() returned, counted from 1.
  [[nodiscard]] std::int64_t line() const { return line_; }

 private:
  [[nodiscard]] std::optional<std::string> read_line();
  void refill();
  [[noreturn]] void refuse(const std::string& problem) const;

  std::string name_;
  Read read_;
  std::vector<std::byte> buffer_;
  std::string_view unread_;
  std::optional<std::string> pending_;  // A line that was read after empty lines.
  std::int64_t n_empty_ = 0;            // Number of empty lines to return before `pending_`.
  std::int64_t n_read_ = 0;
  std::int64_t line_ = 0;
};

/// Returns all lines of a file, as TextLines reads them.
///
/// Throws Error: kNotFound, kSystem, kInvalidArgument for a folder or a device, and the errors of
/// TextLines::next().
[[nodiscard]] std::vector<std::string> read_text_lines(const std::string& path);

/// Returns the number of bytes of a UTF-8 byte order mark at the beginning of a text: 3 or 0.
///
/// `beginning` is the first 4 bytes of the text, or all of a shorter text. For UTF-16 and UTF-32
/// throws Error(kCorruptData) that names the encoding and the command that converts the file.
[[nodiscard]] std::size_t check_encoding(const std::string& name,
                                         std::span<const std::byte> beginning);

/// Escapes a text for an error message, truncated to `max_bytes`. Control characters and invalid
/// UTF-8 bytes become \n, \r, \t or \xNN; byte order marks and other invisible characters become
/// \uNNNN.
[[nodiscard]] std::string escape_text(std::string_view text, std::size_t max_bytes = 60);

/// Returns the number of insertions, deletions, substitutions and transpositions of adjacent
/// letters that turn one text into the other. Source: Damerau, A technique for computer detection
/// and correction of spelling errors, 1964.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns `n_bytes` (at most 256) random bytes from the kernel in hexadecimal, suitable for a
/// secret.
///
/// Throws Error(kSystem) if the kernel provides no random bytes. Thread-safe.
[[nodiscard]] std::string random_hex(std::size_t n_bytes);

}  // namespace unisono
