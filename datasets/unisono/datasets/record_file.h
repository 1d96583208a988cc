#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace unisono::datasets {

/// Writes a file of records: samples of any form and size.
///
/// finish() replaces a file of the same name atomically; without finish() no file appears. The
/// writer needs 16 bytes of memory per record. Not thread-safe.
class RecordWriter {
 public:
  /// Writes to a temporary file beside `path` until finish().
  ///
  /// Throws Error(kSystem) for a missing or read-only folder, Error(kInvalidArgument) for a path of
  /// a folder or device.
  explicit RecordWriter(const std::string& path);

  /// Removes the temporary file, unless finish() was called.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  RecordWriter(RecordWriter&&) = delete;
  RecordWriter& operator=(RecordWriter&&) = delete;

  /// Adds the next record; the first record is number 0.
  ///
  /// Throws Error(kInvalidArgument) for a record of 4 GiB or more, and after finish(). finish()
  /// reports a full disk.
  void add(std::span<const std::byte> record);

  /// Completes the file and waits until the disk has the content. Throws Error(kSystem).
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the records of a file of RecordWriter in any order. The file may be larger than memory.
/// CollatingLoader accepts a RecordFile as source. Thread-safe.
///
/// A record costs two system calls. The file is not mapped, so a file that shrinks meanwhile causes
/// an Error in place of SIGBUS.
class RecordFile {
 public:
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData for
  /// another format and for an incomplete file.
  explicit RecordFile(const std::string& path);
  ~RecordFile();
  RecordFile(RecordFile&&) noexcept;
  RecordFile& operator=(RecordFile&&) noexcept;
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Number of records.
  [[nodiscard]] std::int64_t size() const;

  /// Returns record `index`.
  ///
  /// Throws Error: kInvalidArgument unless 0 <= index < size(); kSystem; kCorruptData, with file,
  /// record and offset, for changed or missing bytes.
  [[nodiscard]] std::vector<std::byte> sample(std::int64_t index) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::datasets
