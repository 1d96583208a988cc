#include "unisono/store/lockable_file.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/store/timed_mutex.h"

namespace unisono::store {
namespace {

// A process that closes any descriptor of a file loses its own locks on that file, and the threads
// of a process do not exclude each other. A single mutex for all files with locks of the process is
// therefore held while such a file is locked, and during the close.
TimedMutex& mutex_of_the_process() {
  static TimedMutex mutex;
  return mutex;
}

}  // namespace

LockableFile::LockableFile(Fd fd, LockOwner owner) : fd_(std::move(fd)), owner_(owner) {}

LockableFile::~LockableFile() {
  if (owner_ == LockOwner::kDescriptor) {
    return;
  }
  (void)mutex_of_the_process().try_lock_until(Deadline::never());
  fd_.reset();
  mutex_of_the_process().unlock();
}

// A range of bytes, mostly beyond the end of the file.
struct LockableFile::Range {
  off_t first;
  off_t n_bytes;

  static Range contents() { return {.first = 0, .n_bytes = kFirstClaim}; }

  static Range claim(std::uint32_t number) {
    return {.first = kFirstClaim + off_t{number}, .n_bytes = 1};
  }

  static Range all_claims() { return {.first = kFirstClaim, .n_bytes = off_t{1} << 32}; }

  static constexpr off_t kFirstClaim = off_t{1} << 48;
};

bool LockableFile::lock(Mode mode, Deadline deadline) {
  std::chrono::nanoseconds pause = std::chrono::microseconds(50);
  for (;;) {
    const int error_number = try_lock(mode);
    if (error_number == 0) {
      return true;
    }
    if (error_number != EAGAIN && error_number != EACCES && error_number != EINTR) {
      throw system_error("no fcntl() lock", error_number);
    }
    if (deadline.has_passed()) {
      return false;
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min<std::chrono::nanoseconds>(pause * 3 / 2, std::chrono::milliseconds(2));
  }
}

void LockableFile::unlock() noexcept {
  (void)set_lock(F_UNLCK, Range::contents());
  if (owner_ == LockOwner::kProcess) {
    mutex_of_the_process().unlock();
  }
}

int LockableFile::try_lock(Mode mode) {
  const int type = mode == Mode::kShared ? F_RDLCK : F_WRLCK;
  if (owner_ == LockOwner::kDescriptor) {
    const int error_number = set_lock(type, Range::contents());
    if (!has_no_such_locks(error_number)) {
      return error_number;
    }
    owner_ = LockOwner::kProcess;
  }
  if (!mutex_of_the_process().try_lock_until(Deadline::after(std::chrono::milliseconds(0)))) {
    return EAGAIN;
  }
  const int error_number = set_lock(type, Range::contents());
  if (error_number != 0) {
    mutex_of_the_process().unlock();
  }
  return error_number;
}

bool LockableFile::claim(std::uint32_t number) {
  // Locks that belong to the process would not exclude the claims of threads.
  const int error_number =
      owner_ == LockOwner::kProcess ? EOPNOTSUPP : set_lock(F_WRLCK, Range::claim(number));
  if (error_number != 0 && error_number != EAGAIN && error_number != EACCES) {
    throw system_error("no fcntl() lock that belongs to an open file (F_OFD_SETLK)", error_number);
  }
  return error_number == 0;
}

void LockableFile::release_claims() noexcept {
  (void)set_lock(F_UNLCK, Range::all_claims());
}

bool LockableFile::is_claimed(std::uint32_t number) const {
  return is_locked(Range::claim(number));
}

bool LockableFile::has_claims() const {
  return is_locked(Range::all_claims());
}

bool LockableFile::has_no_such_locks(int error_number) const noexcept {
  return owner_ == LockOwner::kDescriptor &&
         (error_number == EINVAL || error_number == ENOSYS || error_number == EOPNOTSUPP);
}

bool LockableFile::is_locked(const Range& range) const {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = range.first;
  lock.l_len = range.n_bytes;
  const int command = owner_ == LockOwner::kDescriptor ? F_OFD_GETLK : F_GETLK;
  if (::fcntl(fd_.get(), command, &lock) != 0) {
    throw system_error("can't look for fcntl() locks", errno);
  }
  return lock.l_type != F_UNLCK;
}

int LockableFile::set_lock(int type, const Range& range) const noexcept {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = range.first;
  lock.l_len = range.n_bytes;
  const int command = owner_ == LockOwner::kDescriptor ? F_OFD_SETLK : F_SETLK;
  return ::fcntl(fd_.get(), command, &lock) == 0 ? 0 : errno;
}

}  // namespace unisono::store
