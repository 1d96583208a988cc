#include "unisono/data/file_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} * 1024;
constexpr int kGzipOnly = MAX_WBITS + 16;

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

bool starts_as_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

}  // namespace

void FileSource::InflateEnd::operator()(z_stream* stream) const {
  ::inflateEnd(stream);
  std::default_delete<z_stream>()(stream);
}

FileSource::FileSource(std::string path)
    : path_(std::move(path)),
      file_(open_file(path_)),
      file_bytes_(regular_file_bytes(file_, path_)),
      buffer_(kBufferBytes) {
  refill();
  if (!starts_as_gzip(unread_)) {
    return;
  }
  auto stream = std::make_unique<z_stream>();
  if (::inflateInit2(stream.get(), kGzipOnly) != Z_OK) {
    throw std::bad_alloc();
  }
  inflate_.reset(stream.release());
}

std::optional<std::uint64_t> FileSource::content_bytes() const {
  if (inflate_ != nullptr) {
    return std::nullopt;
  }
  return file_bytes_;
}

std::size_t FileSource::read(std::span<std::byte> into) {
  std::size_t n_read = 0;
  while (n_read < into.size()) {
    if (unread_.empty()) {
      refill();
    }
    const std::span<std::byte> rest = into.subspan(n_read);
    if (unread_.empty()) {
      if (inflate_ != nullptr && inside_member_) {
        throw_corrupt(Z_BUF_ERROR);
      }
      break;
    }
    n_read += inflate_ != nullptr ? inflate_some(rest) : copy_plain(rest);
  }
  return n_read;
}

// Leaves unread_ empty at the end of the file.
void FileSource::refill() {
  ssize_t n_read = 0;
  do {
    n_read = ::read(file_.get(), buffer_.data(), buffer_.size());
  } while (n_read < 0 && errno == EINTR);
  if (n_read < 0) {
    throw system_error(fmt::format("{}: can't read the file", path_), errno);
  }
  unread_ = std::span(buffer_).first(static_cast<std::size_t>(n_read));
}

std::size_t FileSource::copy_plain(std::span<std::byte> into) {
  const std::size_t n_bytes = std::min(into.size(), unread_.size());
  std::memcpy(into.data(), unread_.data(), n_bytes);
  unread_ = unread_.subspan(n_bytes);
  return n_bytes;
}

std::size_t FileSource::inflate_some(std::span<std::byte> into) {
  if (!inside_member_) {
    ::inflateReset(inflate_.get());
    inside_member_ = true;
  }
  const std::size_t n_wanted = std::min(into.size(), kBufferBytes);
  inflate_->next_in = reinterpret_cast<Bytef*>(unread_.data());
  inflate_->avail_in = static_cast<uInt>(unread_.size());
  inflate_->next_out = reinterpret_cast<Bytef*>(into.data());
  inflate_->avail_out = static_cast<uInt>(n_wanted);

  const int status = ::inflate(inflate_.get(), Z_NO_FLUSH);

  unread_ = unread_.last(inflate_->avail_in);
  const std::size_t n_bytes = n_wanted - inflate_->avail_out;
  n_inflated_ += n_bytes;
  if (status == Z_STREAM_END) {
    inside_member_ = false;
  } else if (status != Z_OK) {
    throw_corrupt(status);
  }
  return n_bytes;
}

void FileSource::throw_corrupt(int status) const {
  if (status == Z_MEM_ERROR) {
    throw std::bad_alloc();
  }
  if (status == Z_BUF_ERROR) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the gzip data ends early: all {} bytes of the file give {} bytes "
                            "of content, and more should follow; fetch the file again",
                            path_,
                            file_bytes_,
                            n_inflated_));
  }
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: corrupt gzip data after {} bytes of content: {}; fetch the file "
                          "again",
                          path_,
                          n_inflated_,
                          inflate_->msg != nullptr ? inflate_->msg : ::zError(status)));
}

}  // namespace unisono::data
