#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/health/rank_wait.h"

namespace unisono::health {

/// Keeps the long waits of this rank in the file by which its launcher sees them. Thread-safe.
class LongWaits {
 public:
  /// Null where `path` is empty, or another job of this process has the file. Where it can't be
  /// used, says so, and is null.
  [[nodiscard]] static std::unique_ptr<LongWaits> open(const std::string& path,
                                                       const Logger& logger);

  ~LongWaits();

  LongWaits(const LongWaits&) = delete;
  LongWaits& operator=(const LongWaits&) = delete;
  LongWaits(LongWaits&&) = delete;
  LongWaits& operator=(LongWaits&&) = delete;

  /// Adds a wait; of one that is known, updates whom it waits for and when it was seen.
  void note(const WaitId& id, LongWait wait) UNISONO_EXCLUDES(mutex_);

  /// Removes a wait, if it is known.
  void forget(const WaitId& id) noexcept UNISONO_EXCLUDES(mutex_);

  /// Removes all waits; the next job of this process may use the file.
  void close() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  LongWaits(Fd file, std::byte* memory);

  // A child of fork() has no part in it.
  [[nodiscard]] bool is_own() const;
  void write() noexcept UNISONO_REQUIRES(mutex_);

  pid_t pid_;
  Mutex mutex_;
  Fd file_ UNISONO_GUARDED_BY(mutex_);            // Locked.
  std::byte* memory_ UNISONO_GUARDED_BY(mutex_);  // The file; null once it is closed.
  std::map<WaitId, LongWait> waits_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
