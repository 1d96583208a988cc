#pragma once

#include <string>
#include <vector>

namespace unisono::test {

/// A fresh folder that goes away, with all that is in it, with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  TemporaryFolder(TemporaryFolder&&) = delete;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Writes a file, and the folders above it, and returns its path.
  [[nodiscard]] std::string write(const std::string& name,
                                  const std::string& bytes,
                                  unsigned mode = 0644) const;

  /// Names of what is in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::string path_;
};

/// All bytes of a file; "" if there is none.
[[nodiscard]] std::string read_file(const std::string& path);

}  // namespace unisono::test
