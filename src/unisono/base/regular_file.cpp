#include "unisono/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono {
namespace {

Fd open_file(const std::string& path) {
  // O_NONBLOCK: opening a named pipe that nobody writes would wait for ever.
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.is_open()) {
    return file;
  }
  const int reason = errno;
  if (reason == ENOENT || reason == ENOTDIR) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: there is no such file", path));
  }
  throw system_error(fmt::format("{}: can't open the file", path), reason);
}

std::uint64_t regular_file_bytes(const Fd& file, const std::string& path) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    throw system_error(fmt::format("{}: can't look at the file", path), errno);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: is a folder, not a file", path));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: is not a regular file (but a pipe, socket or device)", path));
  }
  return static_cast<std::uint64_t>(status.st_size);
}

// Calls `read_some` until `into` is full or the file ends.
template <class ReadSome>
std::size_t read_fully(std::span<std::byte> into, const std::string& path, ReadSome read_some) {
  std::size_t n_read = 0;
  while (n_read < into.size()) {
    const ssize_t n_now = read_some(into.subspan(n_read), n_read);
    if (n_now < 0 && errno == EINTR) {
      continue;
    }
    if (n_now < 0) {
      throw system_error(fmt::format("{}: can't read the file", path), errno);
    }
    if (n_now == 0) {
      break;
    }
    n_read += static_cast<std::size_t>(n_now);
  }
  return n_read;
}

}  // namespace

RegularFile::RegularFile(std::string path)
    : path_(std::move(path)), file_(open_file(path_)), n_bytes_(regular_file_bytes(file_, path_)) {}

std::size_t RegularFile::read(std::span<std::byte> into) {
  return read_fully(into, path_, [this](std::span<std::byte> rest, std::size_t) {
    return ::read(file_.get(), rest.data(), rest.size());
  });
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  return read_fully(into, path_, [&](std::span<std::byte> rest, std::size_t n_read) {
    return ::pread(file_.get(), rest.data(), rest.size(), static_cast<off_t>(offset + n_read));
  });
}

}  // namespace unisono
