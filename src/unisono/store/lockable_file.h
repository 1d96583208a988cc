#pragma once

#include <fcntl.h>

#include <cstdint>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::store {

/// Owner of a lock, see fcntl(2).
enum class LockOwner : std::uint8_t {
  kDescriptor,  ///< The open file: separate locks for each, also within a process.
  kProcess      ///< The process: only one such file is locked at a time.
};

/// A file with a lock on the contents, which all processes respect on all machines that share the
/// file, and with claims: numbers that at most one holder has, until the holder closes the file or
/// ends.
///
/// Owned by a FileLog. Not thread-safe. Throws Error(kSystem) if the file system has no locks.
class LockableFile {
 public:
  enum class Mode : std::uint8_t { kShared, kExclusive };

  /// `fd` must be open for reading and writing. If descriptors cannot own locks on this file
  /// system, the first lock() switches to locks of the process.
  explicit LockableFile(Fd fd, LockOwner owner = LockOwner::kDescriptor);

  ~LockableFile();

  LockableFile(const LockableFile&) = delete;
  LockableFile& operator=(const LockableFile&) = delete;
  LockableFile(LockableFile&&) = delete;
  LockableFile& operator=(LockableFile&&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Polls for the lock, because fcntl() has no lock with a deadline: first after 50 us, then at
  /// growing intervals of up to 2 ms. Returns false if the deadline passed. Throws Error(kSystem)
  /// if the file system has no locks.
  [[nodiscard]] bool lock(Mode mode, Deadline deadline);

  void unlock() noexcept;

  /// Returns false if another holder has the number. Throws Error(kSystem) like lock(), and also if
  /// only processes can own locks.
  [[nodiscard]] bool claim(std::uint32_t number);

  /// Releases all numbers claimed through this object.
  void release_claims() noexcept;

  /// Returns true if another holder has the number.
  [[nodiscard]] bool is_claimed(std::uint32_t number) const;
  /// Returns true if another holder has any number.
  [[nodiscard]] bool has_claims() const;

 private:
  struct Range;

  // Returns 0 or an errno.
  [[nodiscard]] int try_lock(Mode mode);
  [[nodiscard]] int set_lock(int type, const Range& range) const noexcept;
  [[nodiscard]] bool has_no_such_locks(int error_number) const noexcept;
  [[nodiscard]] bool is_locked(const Range& range) const;

  Fd fd_;
  LockOwner owner_;
};

}  // namespace unisono::store
