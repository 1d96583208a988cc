#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/data/readers/file_source.h"

namespace unisono::data {

inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

/// A text file's lines, plain or gzip, without their ends (LF or CR LF).
class LineSource {
 public:
  /// Throws as FileSource.
  explicit LineSource(const std::string& path);

  /// The next line, or nothing at the end.
  ///
  /// Throws as FileSource::read(), and Error(kCorruptData) for a line of more than kMaxLineBytes.
  [[nodiscard]] std::optional<std::string> next();

  /// Number of the last line, from 1.
  [[nodiscard]] std::int64_t line() const { return line_; }

 private:
  std::string path_;
  FileSource source_;
  std::vector<char> buffer_;
  std::string_view unread_;
  std::int64_t line_ = 0;
};

/// All of a file, plain or gzip. Throws as LineSource does for a line, of the whole file.
[[nodiscard]] std::string read_whole_text(const std::string& path);

}  // namespace unisono::data
