#include "unisono/report/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::report {
namespace {

constexpr mode_t kMode = 0666;

std::string folder_hint(const std::string& path, int error_number) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  return error_number == ENOENT && !folder.empty() && !std::filesystem::exists(folder, ignored)
             ? "; create the folder " + folder.string() + " first"
             : "";
}

}  // namespace

AppendFile::AppendFile(std::string path, Open how, base::Logger logger)
    : path_(std::move(path)), logger_(std::move(logger)) {
  // O_NONBLOCK: opening a device must not block. Pipes and sockets are rejected below.
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
                    (how == Open::kNew ? O_EXCL : 0);
  fd_ = Fd(::open(path_.c_str(), flags, kMode));
  if (!fd_.is_open()) {
    const int error_number = errno;
    throw descriptor_error("can't write to " + path_ + folder_hint(path_, error_number),
                           error_number);
  }
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0 || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                "can't append to " + path_ + ": it is a pipe or a socket; name a file");
  }
}

int AppendFile::append(std::string_view record) {
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t n_written = ::write(fd_.get(), rest.data(), rest.size());
    if (n_written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(n_written));
      continue;
    }
    const int error_number = n_written == 0 ? ENOSPC : errno;
    if (error_number == EINTR) {
      continue;
    }
    take_back(record.size() - rest.size());
    if (n_left_out_++ == 0) {
      logger_.warning(system_error("can't write to " + path_, error_number).what() +
                      std::string("; the training goes on, and what can't be written is left out"));
    }
    return error_number;
  }
  if (n_left_out_ > 0) {
    logger_.info(path_ + " is written again; " + std::to_string(n_left_out_) +
                 (n_left_out_ == 1 ? " record is" : " records are") + " left out");
    n_left_out_ = 0;
  }
  return 0;
}

// Removes the incomplete record, unless another process has appended after it.
void AppendFile::take_back(std::size_t n_bytes) const {
  const off_t end = ::lseek(fd_.get(), 0, SEEK_CUR);
  struct stat status{};
  if (n_bytes > 0 && ::fstat(fd_.get(), &status) == 0 && status.st_size == end) {
    // If truncation fails, an incomplete record remains, which readers detect.
    (void)!::ftruncate(fd_.get(), end - static_cast<off_t>(n_bytes));
  }
}

bool AppendFile::ends_otherwise(char byte) const {
  struct stat status{};
  char last = byte;
  return ::fstat(fd_.get(), &status) == 0 && status.st_size > 0 &&
         ::pread(fd_.get(), &last, 1, status.st_size - 1) == 1 && last != byte;
}

}  // namespace unisono::report
