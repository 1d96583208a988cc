#include "unisono/base/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "unisono/base/mutex.h"

namespace unisono::detail {
namespace {

// Default upper limit of descriptors (fs.nr_open).
constexpr std::size_t kMaxFds = std::size_t{1} << 20;
constexpr std::size_t kBitsPerWord = 64;

// Constant size, because the child of a fork must not allocate. Never destroyed, because static
// objects close descriptors late. Words that were never written use no memory.
struct Table {
  Mutex mutex;
  std::array<std::uint64_t, kMaxFds / kBitsPerWord> bits UNISONO_GUARDED_BY(mutex){};
  std::size_t n_words_used UNISONO_GUARDED_BY(mutex) = 0;
  bool has_handlers UNISONO_GUARDED_BY(mutex) = false;
};

constinit Table table;

// A fork waits for the mutex. No child is therefore created between the opening of a descriptor and
// the setting of its bit, or between the clearing of the bit and the closing.
void before_fork() UNISONO_TSA(acquire_capability(table.mutex)) {
  table.mutex.lock();
}

void after_fork_in_parent() UNISONO_TSA(release_capability(table.mutex)) {
  table.mutex.unlock();
}

// Replaces each descriptor by a dead socket: objects in the child may still use the number, and
// must not reach another file that reuses the number. Only async-signal-safe calls.
void after_fork_in_child() UNISONO_TSA(release_capability(table.mutex)) {
  const int error_number = errno;
  const int dead = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  for (std::size_t word = 0; word < table.n_words_used; ++word) {
    for (std::uint64_t bits = table.bits[word]; bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(word * kBitsPerWord) + std::countr_zero(bits);
      if (dead < 0 || ::dup3(dead, fd, O_CLOEXEC) < 0) {
        ::close(fd);
      }
    }
  }
  if (dead >= 0) {
    ::close(dead);
  }
  errno = error_number;
  table.mutex.unlock();
}

// Returns 0, or the error number of pthread_atfork().
int install_handlers() UNISONO_REQUIRES(table.mutex) {
  if (table.has_handlers) {
    return 0;
  }
  const int error_number = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  table.has_handlers = error_number == 0;
  return error_number;
}

void set_bit(int fd) UNISONO_REQUIRES(table.mutex) {
  const std::size_t word = static_cast<std::size_t>(fd) / kBitsPerWord;
  table.bits[word] |= std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBitsPerWord);
  table.n_words_used = std::max(table.n_words_used, word + 1);
}

void clear_bit(int fd) UNISONO_REQUIRES(table.mutex) {
  const std::size_t word = static_cast<std::size_t>(fd) / kBitsPerWord;
  table.bits[word] &= ~(std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBitsPerWord));
}

}  // namespace

// The lock is held over short system calls, because a fork must not happen between them.
int open_unshared_fd(const std::function<int()>& open) noexcept {
  const MutexLock lock(table.mutex);
  if (const int error_number = install_handlers(); error_number != 0) {
    errno = error_number;
    return -1;
  }
  const int fd = open();
  if (fd >= 0 && static_cast<std::size_t>(fd) >= kMaxFds) {
    ::close(fd);
    errno = EMFILE;
    return -1;
  }
  if (fd >= 0) {
    set_bit(fd);
  }
  return fd;
}

void close_unshared_fd(int fd) noexcept {
  const MutexLock lock(table.mutex);
  clear_bit(fd);
  ::close(fd);
}

void share_fd(int fd) noexcept {
  const MutexLock lock(table.mutex);
  clear_bit(fd);
}

}  // namespace unisono::detail

namespace unisono {

Fd Fd::open_unshared(const std::function<int()>& open) noexcept {
  Fd fd(detail::open_unshared_fd(open));
  fd.is_unshared_ = fd.is_open();
  return fd;
}

int Fd::release() noexcept {
  if (std::exchange(is_unshared_, false)) {
    detail::share_fd(fd_);
  }
  return std::exchange(fd_, -1);
}

void Fd::reset() noexcept {
  if (fd_ < 0) {
    return;
  }
  const int fd = std::exchange(fd_, -1);
  if (std::exchange(is_unshared_, false)) {
    detail::close_unshared_fd(fd);
  } else {
    ::close(fd);
  }
}

Error descriptor_error(const std::string& what, int error_number) {
  Error error = system_error(what, error_number);
  rlimit limit{};
  if (error_number != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return error;
  }
  return {error.code(),
          fmt::format("{}; raise the limit of open files, which is {} (ulimit -n)",
                      error.what(),
                      limit.rlim_cur)};
}

}  // namespace unisono
