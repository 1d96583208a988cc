#pragma once

#include <optional>
#include <string>

#include "unisono/base/fd.h"
#include "unisono/base/wait_record.h"

namespace unisono::launch {

/// Where a rank tells for which others it waits: a file without a name, which is gone with this
/// process.
class WaitFile {
 public:
  /// Throws Error(kSystem).
  WaitFile();

  /// For the rank's kWaitFileVariable.
  [[nodiscard]] std::string path() const;

  /// What is there. Nothing: no rank has written yet, or one does just now.
  [[nodiscard]] std::optional<WaitRecord> read() const;

 private:
  Fd file_;
};

}  // namespace unisono::launch
