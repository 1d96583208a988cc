#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "unisono/base/fd.h"

#include "expect.h"

namespace unisono::fuzz {

/// A file in memory with these bytes, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    expect(::write(file_.get(), content.data(), content.size()) ==
               static_cast<ssize_t>(content.size()),
           "a file can be written");
  }

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  Fd file_;
};

}  // namespace unisono::fuzz
