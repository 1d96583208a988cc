#include "unisono/store/lockable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/store/turn.h"

namespace unisono::store {
namespace {

// A process that closes any descriptor of a file loses its own locks on it, and its threads do not
// exclude each other. So there is one turn for all files whose locks belong to the process: it
// covers the time of a lock, and the closing.
Turn& turn_of_the_process() {
  static Turn turn;
  return turn;
}

}  // namespace

LockableFile::LockableFile(Fd fd, LockOwner owner) : fd_(std::move(fd)), owner_(owner) {}

LockableFile::~LockableFile() {
  if (owner_ == LockOwner::kDescriptor) {
    return;
  }
  (void)turn_of_the_process().take(Deadline::never());
  fd_.reset();
  turn_of_the_process().give_back();
}

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
  (void)set_lock(F_UNLCK);
  if (owner_ == LockOwner::kProcess) {
    turn_of_the_process().give_back();
  }
}

int LockableFile::try_lock(Mode mode) {
  const int type = mode == Mode::kShared ? F_RDLCK : F_WRLCK;
  if (owner_ == LockOwner::kDescriptor) {
    const int error_number = set_lock(type);
    if (error_number != EINVAL && error_number != ENOSYS && error_number != EOPNOTSUPP) {
      return error_number;
    }
    owner_ = LockOwner::kProcess;
  }
  if (!turn_of_the_process().take(Deadline::after(std::chrono::milliseconds(0)))) {
    return EAGAIN;
  }
  const int error_number = set_lock(type);
  if (error_number != 0) {
    turn_of_the_process().give_back();
  }
  return error_number;
}

int LockableFile::set_lock(int type) const noexcept {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  const int command = owner_ == LockOwner::kDescriptor ? F_OFD_SETLK : F_SETLK;
  return ::fcntl(fd_.get(), command, &lock) == 0 ? 0 : errno;
}

}  // namespace unisono::store
