#pragma once

#include <string>
#include <vector>

namespace unisono::test {

/// A new folder that is deleted with its contents when the object is destroyed.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  TemporaryFolder(TemporaryFolder&&) = delete;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Writes a file and its parent folders. Returns the file's path.
  [[nodiscard]] std::string write(const std::string& name,
                                  const std::string& bytes,
                                  unsigned mode = 0644) const;

  /// Returns the names of the folder's entries, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::string path_;
};

/// Returns all bytes of a file; "" if the file does not exist.
[[nodiscard]] std::string read_file(const std::string& path);

}  // namespace unisono::test
