#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"

namespace unisono::report {

/// A file to whose end whole records are appended, each in one write(2): a process that is killed
/// leaves at most its last one incomplete. A training goes on where they can't be written: that is
/// logged once, what was written of a record is taken back, and later ones are tried again.
///
/// One thread at a time; several processes may append to one file.
class AppendFile {
 public:
  enum class Open {
    kOrCreate,  ///< What is there stays; it may be a device.
    kNew        ///< Nothing may be there.
  };

  /// Throws Error: kSystem, with the folder to create where that is what lacks, and
  /// kInvalidArgument for a folder, a pipe or a socket.
  AppendFile(std::string path, Open how, Logger logger);

  /// Returns errno of a write that failed, else 0.
  int append(std::string_view record);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Whether the file has bytes, and the last is not `byte`: a writer was killed.
  [[nodiscard]] bool ends_otherwise(char byte) const;

 private:
  void take_back(std::size_t n_bytes) const;

  std::string path_;
  Logger logger_;
  Fd fd_;
  std::int64_t n_left_out_ = 0;
};

}  // namespace unisono::report
