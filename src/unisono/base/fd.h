#pragma once

#include <functional>
#include <utility>

namespace unisono {

/// Owns a file descriptor and closes it.
class Fd {
 public:
  Fd() = default;

  explicit Fd(int fd) : fd_(fd) {}

  /// Owns what `open` returns, which children of fork() get no share of: a child that lives on
  /// without exec has a dead socket in its place, so that the other side sees when this process
  /// closes it or ends. Children by vfork(), posix_spawn() and clone() are not meant.
  ///
  /// `open` returns a descriptor, or -1 with errno; forks of other threads wait for it. Not open,
  /// with errno, when that fails.
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

  /// Gives the descriptor up; the caller closes it. Later children share it.
  [[nodiscard]] int release() noexcept;

  void reset() noexcept;

 private:
  int fd_ = -1;
  bool is_unshared_ = false;
};

}  // namespace unisono
