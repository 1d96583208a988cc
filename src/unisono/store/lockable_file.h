#pragma once

#include <fcntl.h>

#include <cstdint>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::store {

/// Who holds a lock, as fcntl(2) has it.
enum class LockOwner : std::uint8_t {
  kDescriptor,  ///< The open file: each has locks of its own, also within one process.
  kProcess      ///< The process: among its threads only one such file at a time is locked.
};

/// A file with a lock on its contents, which processes on all machines that share the file respect,
/// and with claims: numbers that at most one holds, until it closes the file or ends. One thread at
/// a time.
class LockableFile {
 public:
  enum class Mode : std::uint8_t { kShared, kExclusive };

  /// `fd` is open for reading and writing. Where descriptors can't own locks, it comes down to the
  /// process at the first one.
  explicit LockableFile(Fd fd, LockOwner owner = LockOwner::kDescriptor);

  ~LockableFile();

  LockableFile(const LockableFile&) = delete;
  LockableFile& operator=(const LockableFile&) = delete;
  LockableFile(LockableFile&&) = delete;
  LockableFile& operator=(LockableFile&&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Asks again and again, at first after 50 us and ever more rarely up to 2 ms: there is no lock
  /// that a deadline could end. False when that passed. Throws Error(kSystem) if there are no locks
  /// on this file system.
  [[nodiscard]] bool lock(Mode mode, Deadline deadline);

  void unlock() noexcept;

  /// False if another holds it. Throws Error(kSystem) as lock() does, also where only processes
  /// can own locks.
  [[nodiscard]] bool claim(std::uint32_t number);

  void release_claims() noexcept;

  /// By another than this.
  [[nodiscard]] bool is_claimed(std::uint32_t number) const;
  [[nodiscard]] bool has_claims() const;

 private:
  struct Range;

  // 0, or errno.
  [[nodiscard]] int try_lock(Mode mode);
  [[nodiscard]] int set_lock(int type, const Range& range) const noexcept;
  [[nodiscard]] bool has_no_such_locks(int error_number) const noexcept;
  [[nodiscard]] bool is_locked(const Range& range) const;

  Fd fd_;
  LockOwner owner_;
};

}  // namespace unisono::store
