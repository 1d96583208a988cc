#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "multiprocess/spawn.h"

namespace unisono::test {

/// `unisono run -n 2 mnist` with `arguments`, to its end.
[[nodiscard]] ProcessResult run_mnist(const std::vector<std::string>& arguments,
                                      std::chrono::seconds timeout = std::chrono::seconds(100));

/// The lines of `text` that begin with `start`, without it.
[[nodiscard]] std::vector<std::string> lines_after(const std::string& text,
                                                   const std::string& start);

/// A fresh folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  TemporaryFolder(TemporaryFolder&&) = delete;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Names of the files in it, sorted.
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  std::string path_;
};

}  // namespace unisono::test
