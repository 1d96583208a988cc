#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

struct CsvOptions {
  char delimiter = ',';
  /// The first record has the columns' names.
  bool has_header = true;
  /// A longer field is taken for a quote that is never closed.
  std::size_t max_field_bytes = std::size_t{16} << 20;
};

/// Reads a CSV file record by record, plain or gzip, in memory for one record.
///
/// As RFC 4180 has it: fields may stand in quotes, in which delimiters, line ends and doubled
/// quotes are text. Lines end in LF or CR LF; the last one need not. All records have equally many
/// fields; empty lines are skipped where that is more than one, and at the end of the file. The
/// text is UTF-8 with or without a byte order mark. Not thread-safe.
class CsvReader {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder, device or impossible
  /// delimiter; what next() throws for the header, and kCorruptData when there is none or the file
  /// is UTF-16 or UTF-32.
  explicit CsvReader(const std::string& path, const CsvOptions& options = {});
  ~CsvReader();
  CsvReader(CsvReader&&) noexcept;
  CsvReader& operator=(CsvReader&&) noexcept;
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  /// The columns' names; empty without a header.
  [[nodiscard]] const std::vector<std::string>& header() const;

  /// The place of the column with that name.
  ///
  /// Throws Error(kNotFound), with the names that there are.
  [[nodiscard]] std::size_t column(std::string_view name) const;

  /// The fields of the next record, or nothing at the end.
  ///
  /// Throws Error: kSystem; kCorruptData, with file, line and column (of a byte, both from 1), for
  /// a quote that is out of place or never closed, a CR without LF, a NUL byte, a field that is too
  /// long, or another number of fields than before.
  [[nodiscard]] std::optional<std::vector<std::string>> next();

  /// The line in which the last record began, from 1.
  [[nodiscard]] std::int64_t line() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono
