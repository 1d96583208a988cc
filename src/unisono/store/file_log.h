#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/change.h"
#include "unisono/store/limits.h"
#include "unisono/store/lockable_file.h"
#include "unisono/store/store_map.h"

namespace unisono::store {

/// The file of a FileStore, as one process uses it: takes up what others wrote since the last time,
/// and writes changes behind it. One thread at a time.
///
/// Messages begin with the file's path and say what to do.
class FileLog {
 public:
  /// The lock on the file, for a time.
  class Lock {
   public:
    explicit Lock(LockableFile& file) : file_(file) {}

    ~Lock() { file_.unlock(); }

    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    Lock(Lock&&) = delete;
    Lock& operator=(Lock&&) = delete;

   private:
    LockableFile& file_;
  };

  /// Opens the file, and makes it one of ours if it is not there or is empty.
  ///
  /// Throws Error: kNotFound without its folder, kInvalidArgument for what is no file,
  /// kCorruptData for one that is not ours, kIncompatible for another version's, kTimeout,
  /// kSystem.
  FileLog(const std::string& path, const Limits& limits, Deadline deadline);

  ~FileLog();

  FileLog(const FileLog&) = delete;
  FileLog& operator=(const FileLog&) = delete;
  FileLog(FileLog&&) = delete;
  FileLog& operator=(FileLog&&) = delete;

  /// Throws Error(kTimeout).
  [[nodiscard]] Lock lock(LockableFile::Mode mode, Deadline deadline);

  /// Numbers that processes hold as long as they use the file.
  [[nodiscard]] LockableFile& claims() { return *file_; }

  // These want the lock.

  /// Applies to `map` what came since the last time. What the last writer could not finish is not
  /// there.
  ///
  /// Throws Error: kPeerLost if the file was deleted, replaced or cut, kCorruptData.
  void read_new(StoreMap& map);

  /// After read_new(), with the exclusive lock: all of the change is in the file, or nothing.
  ///
  /// Throws Error: kInvalidArgument beyond the limit of the file's size, kSystem. Then the log can
  /// still be used.
  void append(const Change& change);

  /// Deletes the file, unless another has taken its place. With the exclusive lock.
  void remove();

 private:
  [[nodiscard]] bool try_open(Deadline deadline);
  void take_up_header();
  void write_header();
  [[nodiscard]] bool is_in_place() const;
  [[nodiscard]] std::uint64_t checked_size() const;
  [[nodiscard]] std::vector<std::byte> read(std::uint64_t offset, std::size_t n_bytes) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void throw_damaged(std::uint64_t offset) const;

  std::string path_;
  Limits limits_;
  std::unique_ptr<LockableFile> file_;
  std::vector<std::byte> header_;
  std::uint64_t n_read_ = 0;        // Of the file: where the next record begins.
  std::uint64_t n_file_bytes_ = 0;  // When it was last read.
};

}  // namespace unisono::store
