#pragma once

#include <functional>

namespace unisono::detail {

// The descriptors of this process that children of fork() get no share of. There is one such set,
// as fork() is of the whole process. Any thread.

/// Calls `open` while nobody forks, and takes up the descriptor that it returns. -1, with errno,
/// when `open` says so, or when the process has no place for it.
[[nodiscard]] int open_unshared_fd(const std::function<int()>& open) noexcept;

void close_unshared_fd(int fd) noexcept;

/// From now on it is one like others.
void share_fd(int fd) noexcept;

}  // namespace unisono::detail
