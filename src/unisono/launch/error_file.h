#pragma once

#include <string>

#include "unisono/base/fd.h"

namespace unisono::launch {

/// Where a rank leaves the exception that ends it, as `@record` of torch.distributed.elastic does:
/// a file without a name, which is gone with this process.
class ErrorFile {
 public:
  /// Throws Error(kSystem).
  ErrorFile();

  /// For the rank's TORCHELASTIC_ERROR_FILE.
  [[nodiscard]] std::string path() const;

  /// "ValueError: no such data", at most 64 KiB; empty where nothing was left.
  [[nodiscard]] std::string message() const;

 private:
  Fd file_;
};

}  // namespace unisono::launch
