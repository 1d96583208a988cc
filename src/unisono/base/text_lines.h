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

/// Reads a text line by line; every text file that a user writes goes through this class.
///
/// Lines end in LF or CR LF. A UTF-8 byte order mark is skipped. Empty lines at the end of the text
/// are not returned. Not thread-safe.
class TextLines {
 public:
  /// Fills the span from the text's current position; returns the number of bytes, 0 at the end.
  using Read = std::function<std::size_t(std::span<std::byte>)>;

  /// A longer line is refused: the file is not a text.
  static constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

  /// `name` is the file's path, for errors.
  TextLines(std::string name, Read read);

  /// The next line without its end, or an empty optional at the end of the text.
  ///
  /// Throws Error(kCorruptData), with file and line, for UTF-16 or UTF-32, a NUL byte, a CR without
  /// LF, and a line of more than kMaxLineBytes; and the errors of `read`.
  [[nodiscard]] std::optional<std::string> next();

  /// Number of the last line that next() returned, from 1.
  [[nodiscard]] std::int64_t line() const { return line_; }

 private:
  [[nodiscard]] std::optional<std::string> read_line();
  void refill();
  [[noreturn]] void refuse(const std::string& problem) const;

  std::string name_;
  Read read_;
  std::vector<std::byte> buffer_;
  std::string_view unread_;
  std::optional<std::string> pending_;  // A line that was read behind empty lines.
  std::int64_t n_empty_ = 0;            // Empty lines to return before `pending_`.
  std::int64_t n_read_ = 0;
  std::int64_t line_ = 0;
};

/// All lines of a file, as TextLines reads them.
///
/// Throws Error: kNotFound, kSystem, kInvalidArgument for a folder or a device, and as
/// TextLines::next().
[[nodiscard]] std::vector<std::string> read_text_lines(const std::string& path);

/// The number of bytes of the UTF-8 byte order mark that a text begins with: 3 or 0.
///
/// `beginning` is the first 4 bytes of the text, or all of a shorter text. Throws
/// Error(kCorruptData) that names the encoding and the command that converts the file, for UTF-16
/// and UTF-32.
[[nodiscard]] std::size_t check_encoding(const std::string& name,
                                         std::span<const std::byte> beginning);

/// The text for use in an error message: at most `max_bytes` of it, control characters and bytes
/// that are not UTF-8 as \n, \r, \t or \xNN, byte order marks and other invisible characters as
/// \uNNNN.
[[nodiscard]] std::string escape_text(std::string_view text, std::size_t max_bytes = 60);

}  // namespace unisono
