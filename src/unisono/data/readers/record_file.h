#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace unisono {

/// Writes a file of records: samples of any form and size, one after the other.
///
/// The file appears whole, in place of one of that name, when finish() returns, or not at all.
/// Takes 16 bytes of memory per record. Not thread-safe.
class RecordWriter {
 public:
  /// Writes beside `path` until finish().
  ///
  /// Throws Error(kSystem) when the folder is missing or can't be written, Error(kInvalidArgument)
  /// for a path that is a folder or a device.
  explicit RecordWriter(const std::string& path);

  /// Leaves nothing of the file, unless finish() was called.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  RecordWriter(RecordWriter&&) = delete;
  RecordWriter& operator=(RecordWriter&&) = delete;

  /// Adds a record, as number 0, 1, ...
  ///
  /// Throws Error(kInvalidArgument) for one of 4 GiB or more, and after finish(). That the disk is
  /// full is what finish() tells.
  void add(std::span<const std::byte> record);

  /// Ends the file; it is on the disk when this returns. Throws Error(kSystem).
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the records of a file that RecordWriter has written, in any order: a file may be larger
/// than memory. Thread-safe; CollatingLoader takes it as it is.
///
/// Reads with two system calls a record, from the page cache where the record is there. The file is
/// not mapped: one that shrinks while it is read is an error then, and no SIGBUS.
class RecordFile {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData when
  /// it is no record file, or not a whole one.
  explicit RecordFile(const std::string& path);
  ~RecordFile();
  RecordFile(RecordFile&&) noexcept;
  RecordFile& operator=(RecordFile&&) noexcept;
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Number of records.
  [[nodiscard]] std::int64_t size() const;

  /// Record `index`.
  ///
  /// Throws Error: kInvalidArgument unless 0 <= index < size(); kSystem; kCorruptData, with file,
  /// record and offset, when the record is not what was written, or is there no more.
  [[nodiscard]] std::vector<std::byte> sample(std::int64_t index) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono
