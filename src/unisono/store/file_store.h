#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/store.h"

namespace unisono::store {

enum class Access : std::uint8_t;

class FileLog;
class TimedMutex;

/// Options of a FileStore.
struct FileStoreOptions {
  /// Must lie on a file system that all ranks share and that has fcntl() locks, e.g. NFS.
  std::string path;
  /// Limit of waits that no deadline of the caller covers: for the lock of another process on the
  /// file.
  std::chrono::milliseconds io_timeout = std::chrono::seconds(30);
  Limits limits = {};  ///< max_store_bytes limits the size of the file.
};

/// A store in a file, for processes that share only a file system.
///
/// The file is a log of changes and only grows: every set or push takes space. Each call reads the
/// changes of other processes since the last call, under a lock. A waiting call polls after 1 ms,
/// then at growing intervals of up to 20 ms. A completed call survives the end of the process; a
/// change that a killed process has written in part is invisible. No data is synced to disk: after
/// a crash of the machine the job must restart with a new file.
///
/// The file remains when the store is destroyed. Forked children cannot use the store. Thread-safe:
/// one thread at a time uses the file, and a waiting call lets other threads in between.
///
/// Additional errors: Error(kInvalidArgument) for add() on a value that is not a number and beyond
/// the limits, Error(kSystem), e.g. for a full disk, and Error(kTimeout) if another process keeps
/// the lock; these change no data and the store stays usable. Error(kPeerLost) if the file was
/// deleted, replaced or truncated, and Error(kCorruptData) for a damaged file; later calls throw
/// Error(kClosed).
class FileStore final : public MapStore {
 public:
  /// Creates the file if necessary.
  ///
  /// Throws Error(kNotFound) if the folder does not exist, Error(kInvalidArgument) for a folder or
  /// device, Error(kCorruptData) for a file that is not a store's, which stays unchanged,
  /// Error(kIncompatible) for the file of another version, Error(kTimeout), Error(kSystem).
  FileStore(const FileStoreOptions& options, Deadline deadline);

  ~FileStore() override;

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  FileStore(FileStore&&) = delete;
  FileStore& operator=(FileStore&&) = delete;

  /// Changes that follow each other within 20 ms are reported as a single change.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;

  /// Deletes the file, unless another file has taken its place, and closes the store. The caller
  /// must ensure that no process needs the store any more: other users get Error(kPeerLost).
  void remove();

  /// Claims a number for the lifetime of the store, as a sign that the process is alive. Returns
  /// false if another store holds the number. The system releases the numbers of a process whenever
  /// and however the process ends.
  [[nodiscard]] bool claim(std::uint32_t number);

  /// Returns true if another store holds the number.
  [[nodiscard]] bool is_claimed(std::uint32_t number);

  /// Releases the numbers of this store and closes the store. If no other store holds a number,
  /// deletes the file like remove() and returns true.
  bool leave();

 private:
  bool run(const MapCall& call) override;
  [[nodiscard]] std::optional<bool> attempt_alone(const MapCall& call, Access access);
  [[nodiscard]] bool attempt_locked(const MapCall& call, Access access, Deadline deadline);

  std::chrono::milliseconds io_timeout_;
  std::unique_ptr<TimedMutex> connection_mutex_;
  // Guarded by connection_mutex_.
  std::unique_ptr<FileLog> log_;
  std::unique_ptr<StoreMap> map_;
  std::string closed_because_;
};

}  // namespace unisono::store
