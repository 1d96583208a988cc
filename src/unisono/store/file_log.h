#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/store/lockable_file.h"
#include "unisono/store/store.h"
#include "unisono/store/store_map.h"

namespace unisono::store {

// The file of a FileStore: a header, then a record for each change. Integers are little-endian,
// checksums are CRC-32.
//
//   header: 8 bytes magic, u32 version, 16 bytes id, u32 checksum of all before
//   record: u32 payload's length, u32 payload's checksum, u32 checksum of both, payload
//
// The payload is a change, as encode() of store_map.h writes it. The length has a checksum of its
// own: so a record whose end is missing is told from one whose length was damaged.

inline constexpr std::size_t kLogHeaderBytes = 32;
inline constexpr std::uint32_t kLogVersion = 1;

/// Random; distinguishes a file from another file of the same name.
using LogId = std::array<std::byte, 16>;

/// Classification of the first bytes of a file, at most kLogHeaderBytes.
enum class LogStart : std::uint8_t {
  kWhole,
  kTorn,          ///< Empty, or the beginning of a header: the writer was stopped.
  kOtherVersion,  ///< A header of another version of this format.
  kForeign        ///< Not a header of this format, or a damaged header.
};

[[nodiscard]] std::vector<std::byte> encode_log_header(const LogId& id);

[[nodiscard]] LogStart classify_log_start(std::span<const std::byte> bytes);

/// Returns a complete record with the change.
[[nodiscard]] std::vector<std::byte> encode_log_record(const Change& change);

/// State of a record in the file.
enum class RecordState : std::uint8_t {
  kWhole,
  kTorn,    ///< Incomplete: more bytes will follow, or the writer was stopped.
  kDamaged  ///< No writer wrote these bytes.
};

struct LogRecord {
  RecordState state = RecordState::kTorn;
  /// Size of the record; for kTorn the least number of bytes needed to go on.
  std::size_t n_bytes = 0;
  Change change = {};  ///< For kWhole.
};

/// Parses the record at the beginning of `bytes`.
[[nodiscard]] LogRecord read_log_record(std::span<const std::byte> bytes);

/// The file of a FileStore, as seen by one process: reads the changes that other processes appended
/// since the last call, and appends changes.
///
/// Owned by a FileStore. Not thread-safe; Lock excludes other processes. Error messages begin with
/// the file's path and name a remedy.
class FileLog {
 public:
  /// Holds the lock on the file for the lifetime of the object.
  class Lock {
   public:
    explicit Lock(LockableFile& file) : file_(file) {}

    ~Lock() { file_.unlock(); }

    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    Lock(Lock&&) = delete;
    Lock& operator=(Lock&&) = delete;

   private:
    LockableFile& file_;
  };

  /// Opens the file, and writes the header if the file is new, empty or has an incomplete header.
  ///
  /// Throws Error(kNotFound) if the folder does not exist, Error(kInvalidArgument) if the path is
  /// not a regular file, Error(kCorruptData) if the file is not a store's, Error(kIncompatible) if
  /// another version wrote the file, Error(kTimeout), Error(kSystem).
  FileLog(const std::string& path, const Limits& limits, Deadline deadline);

  ~FileLog();

  FileLog(const FileLog&) = delete;
  FileLog& operator=(const FileLog&) = delete;
  FileLog(FileLog&&) = delete;
  FileLog& operator=(FileLog&&) = delete;

  /// Blocks until the lock is free. Throws Error(kTimeout).
  [[nodiscard]] Lock lock(LockableFile::Mode mode, Deadline deadline);

  /// Numbers that processes hold while using the file.
  [[nodiscard]] LockableFile& claims() { return *file_; }

  // The following functions require the lock.

  /// Applies the changes since the last call to `map`. Ignores an incomplete record of a stopped
  /// writer at the end.
  ///
  /// Throws Error(kPeerLost) if the file was deleted, replaced or truncated, and
  /// Error(kCorruptData).
  void read_new(StoreMap& map);

  /// Appends the whole change, or throws and appends no part of it. Requires the exclusive lock and
  /// a preceding read_new().
  ///
  /// Throws Error(kInvalidArgument) beyond the limit on the file's size, and Error(kSystem). The
  /// log stays usable.
  void append(const Change& change);

  /// Deletes the file, unless another file has taken its place. Requires the exclusive lock.
  void remove();

 private:
  [[nodiscard]] bool try_open(Deadline deadline);
  void take_up_header();
  void write_header();
  [[nodiscard]] bool is_in_place() const;
  [[nodiscard]] std::uint64_t checked_size() const;
  [[nodiscard]] std::vector<std::byte> read(std::uint64_t offset, std::size_t n_bytes) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void throw_damaged(std::uint64_t offset) const;

  std::string path_;
  Limits limits_;
  std::unique_ptr<LockableFile> file_;
  std::vector<std::byte> header_;
  std::uint64_t n_read_ = 0;        // Offset of the next record in the file.
  std::uint64_t n_file_bytes_ = 0;  // Size of the file at the last read.
};

}  // namespace unisono::store
