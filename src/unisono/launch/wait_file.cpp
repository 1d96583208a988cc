#include "unisono/launch/wait_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/wait_record.h"

namespace unisono::launch {

// Of a fixed size: who maps it need not fear that another cuts it.
WaitFile::WaitFile()
    : file_(::memfd_create("unisono-rank-waits", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file_.is_open() || ::ftruncate(file_.get(), kWaitFileBytes) != 0 ||
      ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw system_error("cannot make a file for a rank's waits", errno);
  }
}

std::string WaitFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

std::optional<WaitRecord> WaitFile::read() const {
  std::vector<std::byte> bytes(kWaitFileBytes);
  const ssize_t n_read = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n_read, 0)));
  const std::optional<std::span<const std::byte>> record = find_checked(bytes);
  return record ? decode_wait_record(*record) : std::nullopt;
}

}  // namespace unisono::launch
