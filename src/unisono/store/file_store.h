#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/store/limits.h"
#include "unisono/store/map_store.h"
#include "unisono/store/watch.h"

namespace unisono::store {

enum class Access : std::uint8_t;

class FileLog;
class TimedMutex;

struct FileStoreOptions {
  std::string path;  ///< On a file system with fcntl() locks that all ranks share, e.g. NFS.
  /// For what is no wait of the caller's: another's lock on the file.
  std::chrono::milliseconds io_timeout = std::chrono::seconds(30);
  Limits limits = {};  ///< max_store_bytes is of the file.
};

/// A store in a file, through which processes meet that share nothing else.
///
/// The file is a log of changes, which only grows: what is set or pushed again and again takes
/// space each time. Each call reads what others wrote since the last one, under a lock. Who waits
/// looks after 1 ms, then ever more rarely, up to every 20 ms. What a call has written stays when
/// its process is killed, and what a killed process wrote in part is not there for anybody. Nothing
/// is synced to disk: after a crash of the machine the job starts again, with a new file.
///
/// Thread-safe: one thread at a time uses the file; a wait lets the others in between.
///
/// Throws Error, besides what Store says: kInvalidArgument for a call that adds to what is no
/// number or would exceed the limits, kSystem for a full disk and the like, kTimeout when another
/// process keeps its lock; these change nothing, and the store stays usable. kPeerLost if the file
/// was deleted, replaced or cut, kCorruptData if it was damaged; then kClosed.
///
/// The file stays when the store ends. Children of fork() can't use the store.
class FileStore final : public MapStore {
 public:
  /// Makes the file if it is not there or is empty.
  ///
  /// Throws Error: kNotFound without its folder; kInvalidArgument for a folder or device;
  /// kCorruptData for a file that is no store's, which stays as it is; kIncompatible for that of
  /// another version; kTimeout; kSystem.
  FileStore(const FileStoreOptions& options, Deadline deadline);

  ~FileStore() override;

  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  FileStore(FileStore&&) = delete;
  FileStore& operator=(FileStore&&) = delete;

  /// Of changes that follow each other within 20 ms, tells as of one.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;

  /// Deletes the file, unless another has taken its place, and closes the store: for who knows that
  /// nobody needs it any more. Those who still use it get Error(kPeerLost).
  void remove();

  /// Holds a number as long as the store lives: the mark of a process that is there. False if
  /// another holds it. When a process ends, however it does, its numbers are free.
  [[nodiscard]] bool claim(std::uint32_t number);

  /// Whether another holds the number.
  [[nodiscard]] bool is_claimed(std::uint32_t number);

  /// Gives this store's numbers up and closes it. If nobody else holds one, deletes the file as
  /// remove() does, and returns true.
  bool leave();

 private:
  bool run(const MapCall& call) override;
  [[nodiscard]] std::optional<bool> attempt_alone(const MapCall& call, Access access);
  [[nodiscard]] bool attempt_locked(const MapCall& call, Access access, Deadline deadline);

  std::chrono::milliseconds io_timeout_;
  std::unique_ptr<TimedMutex> connection_mutex_;
  // These belong to who holds the mutex.
  std::unique_ptr<FileLog> log_;
  std::unique_ptr<StoreMap> map_;
  std::string closed_because_;
};

}  // namespace unisono::store
