#include "unisono/base/fd.h"

#include <unistd.h>

#include <functional>
#include <utility>

#include "unisono/base/unshared_fds.h"

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

}  // namespace unisono
