#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::datasets {

/// Form of a CSV file.
struct CsvOptions {
  /// Character between two fields.
  char delimiter = ',';
  /// The first record has the names of the columns.
  bool has_header = true;
  /// Limit of a field: a quote that is never closed must not read the whole file into memory.
  std::size_t max_field_bytes = std::size_t{16} << 20;
};

/// Reads a CSV file record by record, plain or gzip. Memory holds one record at a time.
///
/// The format is that of RFC 4180: a field may stand in quotes, in which delimiters, line ends and
/// doubled quotes are text. Lines end in LF or CR LF; the last line may have no end. All records
/// have the same number of fields. Empty lines are skipped in a file of several columns, and at the
/// end of any file. The text is UTF-8 with or without a byte order mark. Not thread-safe.
///
/// Source: RFC 4180.
class CsvReader {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder, a device or an impossible
  /// delimiter; the errors of next() for the header; kCorruptData for a missing header and for
  /// UTF-16 or UTF-32.
  explicit CsvReader(const std::string& path, const CsvOptions& options = {});
  ~CsvReader();
  CsvReader(CsvReader&&) noexcept;
  CsvReader& operator=(CsvReader&&) noexcept;
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  /// Names of the columns; empty without a header.
  [[nodiscard]] const std::vector<std::string>& header() const;

  /// Index of the column with this name.
  ///
  /// Throws Error(kNotFound), with the names of all columns.
  [[nodiscard]] std::size_t column(std::string_view name) const;

  /// Fields of the next record, or an empty optional at the end.
  ///
  /// Throws Error: kSystem; kCorruptData, with file, line and column (of a byte, both from 1), for
  /// a misplaced or open quote, a CR without LF, a NUL byte, a field above the limit, or a number
  /// of fields that differs from the first record's.
  [[nodiscard]] std::optional<std::vector<std::string>> next();

  /// Line in which the last record began, from 1.
  [[nodiscard]] std::int64_t line() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::datasets
