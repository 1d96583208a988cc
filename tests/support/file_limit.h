#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace unisono::test {

/// Limits the number of open files of this process and its children during the object's lifetime.
class FileLimit {
 public:
  explicit FileLimit(rlim_t n_files) {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(n_files, before_.rlim_max);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }

  ~FileLimit() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }

  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  FileLimit(FileLimit&&) = delete;
  FileLimit& operator=(FileLimit&&) = delete;

 private:
  rlimit before_{};
};

}  // namespace unisono::test
