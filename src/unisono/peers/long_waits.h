#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/transport/descriptor.h"

namespace unisono::peers {

/// Tracks the threads that block on each asynchronous operation of a rank, and the operations with
/// callbacks. Shared by a job's groups. Thread-safe.
class BlockedThreads {
 public:
  /// Records that `thread` blocks until the operation has ended, or until another operation for
  /// which it already waits has ended.
  void begin(std::uint64_t thread, const transport::WaitId& work) UNISONO_EXCLUDES(mutex_);
  /// Ends all waits of `thread`.
  void end(std::uint64_t thread) UNISONO_EXCLUDES(mutex_);

  /// Returns the operation for which `thread` waits; std::nullopt if any of several operations
  /// would end the wait.
  [[nodiscard]] std::optional<transport::WaitId> find(std::uint64_t thread) const
      UNISONO_EXCLUDES(mutex_);

  /// Returns the begin of the longest wait of a thread for `work`, alone or among several
  /// operations; std::nullopt without such a thread.
  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since(
      const transport::WaitId& work) const UNISONO_EXCLUDES(mutex_);

  /// Records that a callback will run at the end of the operation, until remove_callback().
  void add_callback(const transport::WaitId& work) UNISONO_EXCLUDES(mutex_);
  /// The callbacks of the operation have run.
  void remove_callback(const transport::WaitId& work) UNISONO_EXCLUDES(mutex_);

  /// Returns whether a callback may run while the rank waits in `wait`. Excludes callbacks of this
  /// operation and of later collective operations of the same group, because the group's operations
  /// end in call order.
  [[nodiscard]] bool has_callback_besides(const transport::WaitId& wait) const
      UNISONO_EXCLUDES(mutex_);

 private:
  struct Wait {
    Deadline::Clock::time_point since;
    std::set<transport::WaitId> works;
  };

  mutable Mutex mutex_;
  std::map<std::uint64_t, Wait> waits_ UNISONO_GUARDED_BY(mutex_);  // Indexed by thread.
  std::set<transport::WaitId> with_callback_ UNISONO_GUARDED_BY(mutex_);
};

/// Keeps the long waits of this rank in a file that its launcher reads. Owned by the job.
/// Thread-safe. A child of fork() does not write to the file.
class LongWaits {
 public:
  /// Opens the file. Returns null if `path` is empty or another job of this process has the file;
  /// logs a warning and returns null if the file can't be used.
  [[nodiscard]] static std::unique_ptr<LongWaits> open(const std::string& path,
                                                       const base::Logger& logger);

  ~LongWaits();

  LongWaits(const LongWaits&) = delete;
  LongWaits& operator=(const LongWaits&) = delete;
  LongWaits(LongWaits&&) = delete;
  LongWaits& operator=(LongWaits&&) = delete;

  /// Adds a wait; for a known wait, updates the late ranks and the time at which it was last seen.
  void note(const transport::WaitId& id, LongWait wait) UNISONO_EXCLUDES(mutex_);

  /// Removes a wait if it is known.
  void forget(const transport::WaitId& id) noexcept UNISONO_EXCLUDES(mutex_);

  /// Removes all waits. The next job of this process may then use the file.
  void close() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  LongWaits(Fd file, std::byte* memory);

  // False in a child of fork(), which must not write to the file.
  [[nodiscard]] bool is_own() const;
  void write() noexcept UNISONO_REQUIRES(mutex_);

  pid_t pid_;
  Mutex mutex_;
  Fd file_ UNISONO_GUARDED_BY(mutex_);            // Holds the lock on the file.
  std::byte* memory_ UNISONO_GUARDED_BY(mutex_);  // Mapping of the file; null after close().
  std::map<transport::WaitId, LongWait> waits_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::peers
