#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"

namespace unisono::report {

/// Appends records to a file, each with a single write(2) if possible: a killed process leaves at
/// most the last record incomplete.
///
/// A write error does not throw, so that the training continues: the error is logged once, the
/// incomplete record is removed, and later records are tried again. Not thread-safe; several
/// processes may append to the same file.
class AppendFile {
 public:
  enum class Open {
    kOrCreate,  ///< Keep existing content; the path may be a device.
    kNew        ///< Fail if the file exists.
  };

  /// Opens the file. Throws Error: kInvalidArgument for a pipe; kSystem for other failures,
  /// including a folder or a socket as the path. The message names a parent folder that is missing.
  AppendFile(std::string path, Open how, base::Logger logger);

  /// Appends a record. Returns 0, or the errno of a failed write.
  int append(std::string_view record);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Returns true if the file is not empty and its last byte is not `byte`, because a writer was
  /// killed.
  [[nodiscard]] bool ends_otherwise(char byte) const;

 private:
  void take_back(std::size_t n_bytes) const;

  std::string path_;
  base::Logger logger_;
  Fd fd_;
  std::int64_t n_left_out_ = 0;
};

}  // namespace unisono::report
