#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "unisono/base/fd.h"

namespace unisono {

/// A file that is either complete under its name or not there: written beside it under a name of
/// its own, then renamed. Without commit() the destructor removes what was written, and an older
/// file of that name stays as it was.
class AtomicFile {
 public:
  /// Throws Error(kSystem) when the folder is missing or can't be written, Error(kInvalidArgument)
  /// for a path that is a folder or a device.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  AtomicFile(AtomicFile&&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;

  /// Appends bytes. A failure is kept for commit() to throw, and later bytes are dropped: writers
  /// of file formats can rarely bear an exception half way.
  void write(std::span<const std::byte> bytes) noexcept;

  /// Waits until the bytes are on disk. Throws Error(kSystem) if that or an earlier write() failed.
  void flush();

  /// flush(), then gives the file its name and waits until that is on disk. Throws Error(kSystem).
  void commit();

 private:
  [[noreturn]] void fail(const std::string& step, int error_number) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Fd fd_;
  int write_error_ = 0;
};

/// Waits until the names in a folder are on disk; at once where the file system can't do that, or
/// the folder may not be read. Throws Error(kSystem).
void sync_folder(const std::filesystem::path& folder);

}  // namespace unisono
