#include "unisono/store/file_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::store {
namespace {

// Not text; damaged by programs that transfer the file as text.
constexpr std::array<unsigned char, 8> kMagic{0x89, 'U', 'N', 'I', 'S', '\r', '\n', 0x1a};
constexpr std::size_t kVersionEnd = kMagic.size() + sizeof(kLogVersion);
constexpr std::size_t kRecordStartBytes = 12;
constexpr std::size_t kNumberBytes = sizeof(std::uint32_t);

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.subspan(offset, sizeof(number)).data(), sizeof(number));
  return number;
}

}  // namespace

std::vector<std::byte> encode_log_header(const LogId& id) {
  ByteWriter writer;
  writer.put_raw(std::as_bytes(std::span(kMagic)));
  writer.put(kLogVersion);
  writer.put_raw(id);
  writer.put(checksum(writer.bytes()));
  return std::move(writer).bytes();
}

LogStart classify_log_start(std::span<const std::byte> bytes) {
  const std::vector<std::byte> expected = encode_log_header({});
  const auto begins_alike = [&](std::size_t n_bytes) {
    return std::ranges::equal(bytes.first(n_bytes), std::span(expected).first(n_bytes));
  };
  const std::size_t n_known = std::min(bytes.size(), kVersionEnd);
  if (!begins_alike(n_known)) {
    return n_known == kVersionEnd && begins_alike(kMagic.size()) ? LogStart::kOtherVersion
                                                                 : LogStart::kForeign;
  }
  if (bytes.size() < kLogHeaderBytes) {
    return LogStart::kTorn;
  }
  const std::size_t n_checked = kLogHeaderBytes - kNumberBytes;
  return number_at(bytes, n_checked) == checksum(bytes.first(n_checked)) ? LogStart::kWhole
                                                                         : LogStart::kForeign;
}

std::vector<std::byte> encode_log_record(const Change& change) {
  ByteWriter payload;
  encode(payload, change);
  ByteWriter record;
  record.put(static_cast<std::uint32_t>(payload.bytes().size()));
  record.put(checksum(payload.bytes()));
  record.put(checksum(record.bytes()));
  record.put_raw(payload.bytes());
  return std::move(record).bytes();
}

LogRecord read_log_record(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordStartBytes) {
    return {.state = RecordState::kTorn, .n_bytes = kRecordStartBytes};
  }
  if (number_at(bytes, 2 * kNumberBytes) != checksum(bytes.first(2 * kNumberBytes))) {
    return {.state = RecordState::kDamaged};
  }
  const std::size_t n_bytes = kRecordStartBytes + number_at(bytes, 0);
  if (bytes.size() < n_bytes) {
    return {.state = RecordState::kTorn, .n_bytes = n_bytes};
  }
  const auto payload = bytes.first(n_bytes).subspan(kRecordStartBytes);
  if (number_at(bytes, kNumberBytes) != checksum(payload)) {
    return {.state = RecordState::kDamaged};
  }
  std::optional<Change> change = decode_change(payload);
  if (!change) {
    return {.state = RecordState::kDamaged};
  }
  return {.state = RecordState::kWhole, .n_bytes = n_bytes, .change = std::move(*change)};
}

namespace {

constexpr const char* kStartAgain = "end the job, delete the file and start again";

Fd open_file(const std::string& path) {
  // O_NONBLOCK, because opening a named pipe would block. Mode 0600: only processes of the same
  // user may share the file.
  Fd fd = Fd::open_unshared([&] {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
  });
  if (fd.is_open()) {
    return fd;
  }
  const int reason = errno;
  if (reason == ENOENT || reason == ENOTDIR) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("store {}: the folder of the file does not exist; make it first, on a "
                            "file system that all ranks share",
                            path));
  }
  if (reason == EISDIR) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store {}: is a folder; name a file in it", path));
  }
  throw system_error(fmt::format("store {}: can't open the file to read and write, as every rank "
                                 "must be able to",
                                 path),
                     reason);
}

LogId random_id() {
  LogId id{};
  if (::getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    throw system_error("no random bytes", errno);
  }
  return id;
}

}  // namespace

FileLog::FileLog(const std::string& path, const Limits& limits, Deadline deadline)
    : path_(std::filesystem::absolute(path)), limits_(limits) {
  // The last rank of an earlier job may delete the file between the open and the lock.
  while (!try_open(deadline)) {
    if (deadline.has_passed()) {
      throw Error(
          ErrorCode::kTimeout,
          fmt::format("store {}: other processes keep deleting the file; use another name", path_));
    }
  }
}

FileLog::~FileLog() = default;

bool FileLog::try_open(Deadline deadline) {
  file_ = std::make_unique<LockableFile>(open_file(path_));
  struct stat status{};
  if (::fstat(file_->fd(), &status) != 0) {
    throw system_error(fmt::format("store {}: can't get the file's state", path_), errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("store {}: is not a regular file, but a pipe, socket or device", path_));
  }
  const Lock held = lock(LockableFile::Mode::kExclusive, deadline);
  if (!is_in_place()) {
    return false;
  }
  take_up_header();
  return true;
}

void FileLog::take_up_header() {
  header_ = read(0, kLogHeaderBytes);
  switch (classify_log_start(header_)) {
    case LogStart::kWhole:
      break;
    case LogStart::kTorn:
      write_header();
      break;
    case LogStart::kOtherVersion:
      throw Error(ErrorCode::kIncompatible,
                  fmt::format("store {}: another version of Unisono made the file, whose format "
                              "this version can't read; run the same version on all ranks, or {}",
                              path_,
                              kStartAgain));
    case LogStart::kForeign:
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("store {}: the file existed before and is not a store's; it is not "
                              "changed: name one that does not exist yet",
                              path_));
  }
  n_read_ = header_.size();
}

void FileLog::write_header() {
  n_read_ = 0;
  n_file_bytes_ = header_.size();
  header_ = encode_log_header(random_id());
  write(0, header_);
}

FileLog::Lock FileLog::lock(LockableFile::Mode mode, Deadline deadline) {
  try {
    if (file_->lock(mode, deadline)) {
      return Lock(*file_);
    }
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("store {}: {}; use a folder of a file system that has them (NFS: with "
                            "its lock service)",
                            path_,
                            error.what()));
  }
  throw Error(ErrorCode::kTimeout,
              fmt::format("store {}: no lock on the file in time: another process holds it; is a "
                          "process of the job stopped?",
                          path_));
}

void FileLog::read_new(StoreMap& map) {
  constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
  n_file_bytes_ = checked_size();
  for (std::size_t n_wanted = kBlockBytes; n_read_ < n_file_bytes_;) {
    const std::vector<std::byte> block =
        read(n_read_, std::min<std::uint64_t>(n_wanted, n_file_bytes_ - n_read_));
    std::span<const std::byte> rest = block;
    LogRecord record = read_log_record(rest);
    while (record.state == RecordState::kWhole) {
      for (MapStep& step : record.change) {
        apply(map, std::move(step), kNobody);
      }
      n_read_ += record.n_bytes;
      rest = rest.subspan(record.n_bytes);
      record = read_log_record(rest);
    }
    if (record.state == RecordState::kDamaged) {
      throw_damaged(n_read_);
    }
    if (record.n_bytes > n_file_bytes_ - n_read_) {
      return;  // The rest is an incomplete record.
    }
    n_wanted = std::max(kBlockBytes, record.n_bytes);
  }
}

void FileLog::append(const Change& change) {
  const std::vector<std::byte> record = encode_log_record(change);
  if (n_read_ + record.size() > limits_.max_store_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("store {}: has {} bytes and would get {} more; at most {} are allowed",
                            path_,
                            n_read_,
                            record.size(),
                            limits_.max_store_bytes));
  }
  write(n_read_, record);
  n_read_ += record.size();
  n_file_bytes_ = n_read_;
}

void FileLog::remove() {
  if (is_in_place() && ::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    throw system_error(fmt::format("store {}: can't delete the file", path_), errno);
  }
}

// Returns false if the path no longer leads to the opened file.
bool FileLog::is_in_place() const {
  struct stat ours{};
  struct stat there{};
  return ::fstat(file_->fd(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

// Returns the size of the file. Throws unless the path still leads to the opened file and the file
// contains all data that was read.
std::uint64_t FileLog::checked_size() const {
  struct stat status{};
  if (!is_in_place()) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("store {}: the file was deleted, renamed or replaced while the job used "
                    "it; give each job a file of its own, and start again",
                    path_));
  }
  if (::fstat(file_->fd(), &status) != 0) {
    throw system_error(fmt::format("store {}: can't get the file's state", path_), errno);
  }
  const auto n_bytes = static_cast<std::uint64_t>(status.st_size);
  if (n_bytes < n_read_) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("store {}: the file had {} bytes and was cut to {} by another program; {}",
                    path_,
                    n_read_,
                    n_bytes,
                    kStartAgain));
  }
  if (read(0, header_.size()) != header_) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("store {}: another program overwrote the file while the job used it; {}",
                    path_,
                    kStartAgain));
  }
  return n_bytes;
}

// Returns fewer bytes at the end of the file.
std::vector<std::byte> FileLog::read(std::uint64_t offset, std::size_t n_bytes) const {
  std::vector<std::byte> bytes(n_bytes);
  std::size_t n_done = 0;
  while (n_done < n_bytes) {
    const ssize_t n = ::pread(
        file_->fd(), bytes.data() + n_done, n_bytes - n_done, static_cast<off_t>(offset + n_done));
    if (n < 0 && errno != EINTR) {
      throw system_error(fmt::format("store {}: can't read the file", path_), errno);
    }
    if (n == 0) {
      bytes.resize(n_done);
      break;
    }
    n_done += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  return bytes;
}

// Truncates a record without an end at `offset` before the write, and the written bytes after a
// failure. If the truncation fails too, the next writer repeats the truncation.
void FileLog::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto end = static_cast<off_t>(offset);
  bool is_good = n_file_bytes_ == offset || ::ftruncate(file_->fd(), end) == 0;
  for (std::size_t n_done = 0; is_good && n_done < bytes.size();) {
    const ssize_t n = ::pwrite(file_->fd(),
                               bytes.data() + n_done,
                               bytes.size() - n_done,
                               static_cast<off_t>(offset + n_done));
    is_good = n > 0 || (n < 0 && errno == EINTR);
    n_done += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  if (!is_good) {
    const int reason = errno;
    (void)::ftruncate(file_->fd(), end);
    throw system_error(fmt::format("store {}: can't write {} bytes; none of them is in the file; "
                                   "make room, or use another folder",
                                   path_,
                                   bytes.size()),
                       reason);
  }
}

void FileLog::throw_damaged(std::uint64_t offset) const {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("store {}: the record at byte {} was damaged by something that does not "
                          "respect locks; {}",
                          path_,
                          offset,
                          kStartAgain));
}

}  // namespace unisono::store
