#include "unisono/base/atomic_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::random_device random;
  std::filesystem::path name = path;
  name += ".part-" + std::to_string(random()) + std::to_string(random());
  return name;
}

// So much is worth it that the disk begins with it.
constexpr off_t kWriteBackBytes = off_t{1} << 22;

// Has the disk begin with what is full of a large file's parts, of which the last `n_bytes` were
// just written: flush() then has less to wait for. Whether it does is all the same: flush() says
// what fails.
void begin_write_back(int file, ssize_t n_bytes) {
  const off_t size = ::lseek(file, 0, SEEK_CUR);
  const off_t begin = (size - n_bytes) / kWriteBackBytes * kWriteBackBytes;
  const off_t end = size / kWriteBackBytes * kWriteBackBytes;
  if (end > begin) {
    (void)::sync_file_range(file, begin, end - begin, SYNC_FILE_RANGE_WRITE);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  if (!path_.has_filename()) {
    throw Error(ErrorCode::kInvalidArgument,
                "can't write a file to '" + path_.string() + "': it names no file");
  }
  std::error_code ignored;
  if (const auto status = std::filesystem::status(path_, ignored);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "can't write a file to '" + path_.string() + "': " +
            (is_directory(status) ? "it is a folder" : "it is a device, a pipe or a socket"));
  }
  fd_ = Fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_.is_open()) {
    fail("create a file in " + folder_of(path_).string(), errno);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open()) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty() && write_error_ == 0) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      begin_write_back(fd_.get(), written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      write_error_ = errno;
    }
  }
}

void AtomicFile::flush() {
  if (write_error_ != 0) {
    fail("write it", write_error_);
  }
  if (::fsync(fd_.get()) != 0) {
    fail("write it to disk", errno);
  }
}

void AtomicFile::commit() {
  flush();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("give it its name", errno);
  }
  fd_.reset();
  sync_folder(folder_of(path_));
}

void AtomicFile::fail(const std::string& step, int error_number) const {
  std::string hint;
  std::error_code ignored;
  if (error_number == ENOENT && !std::filesystem::exists(folder_of(path_), ignored)) {
    hint = "; create the folder " + folder_of(path_).string() + " first";
  }
  throw system_error("save " + path_.string() + ": can't " + step + hint, error_number);
}

void sync_folder(const std::filesystem::path& folder) {
  const Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_synced = opened.is_open() && ::fsync(opened.get()) == 0;
  const int error_number = errno;
  const bool is_impossible =
      opened.is_open() ? error_number == EINVAL || error_number == ENOTSUP : error_number == EACCES;
  if (!is_synced && !is_impossible) {
    throw system_error("write the names in " + folder.string() + " to disk", error_number);
  }
}

}  // namespace unisono
