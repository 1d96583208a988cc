#pragma once

#include <functional>
#include <string>
#include <utility>

#include "unisono/base/error.h"

namespace unisono {

/// Owns a file descriptor and closes it in the destructor. Movable, not copyable. Not thread-safe.
class Fd {
 public:
  Fd() = default;

  explicit Fd(int fd) : fd_(fd) {}

  /// Owns the descriptor that `open` returns and keeps it out of children of fork(): a child that
  /// continues without exec gets a dead socket under the same number. The other side therefore
  /// detects when this process closes the descriptor or ends. Children of vfork(), posix_spawn()
  /// and clone() are not covered.
  ///
  /// `open` returns a descriptor, or -1 with errno set; fork() in other threads waits until `open`
  /// has returned. If opening fails, the result is not open and errno is set.
  [[nodiscard]] static Fd open_unshared(const std::function<int()>& open) noexcept;

  ~Fd() { reset(); }

  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), is_unshared_(std::exchange(other.is_unshared_, false)) {}

  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      is_unshared_ = std::exchange(other.is_unshared_, false);
    }
    return *this;
  }

  [[nodiscard]] int get() const noexcept { return fd_; }

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

  /// Returns the descriptor and releases ownership; the caller closes it. Children that are forked
  /// later share the descriptor.
  [[nodiscard]] int release() noexcept;

  void reset() noexcept;

 private:
  int fd_ = -1;
  bool is_unshared_ = false;
};

}  // namespace unisono

namespace unisono::detail {

// The set of this process's descriptors that children of fork() do not share. There is one set per
// process because fork() affects the whole process. Any thread may call these functions.

/// Calls `open` while no fork is in progress and adds the returned descriptor to the set. Returns
/// -1 with errno set if `open` fails or if the descriptor exceeds the table.
[[nodiscard]] int open_unshared_fd(const std::function<int()>& open) noexcept;

/// Removes the descriptor from the set and closes the descriptor. No fork happens in between.
void close_unshared_fd(int fd) noexcept;

/// Removes the descriptor from the set: children that are forked later share it.
void share_fd(int fd) noexcept;

}  // namespace unisono::detail

namespace unisono {

/// Returns system_error() for a call that creates a file descriptor. If the process has reached its
/// limit of open files (EMFILE), the message adds the limit and the remedy.
[[nodiscard]] Error descriptor_error(const std::string& what, int error_number);

}  // namespace unisono
