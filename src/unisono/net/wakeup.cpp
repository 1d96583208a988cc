#include "unisono/net/wakeup.h"

#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "unisono/base/descriptor_error.h"

namespace unisono::net {

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_.is_open()) {
    throw descriptor_error("creating an eventfd", errno);
  }
}

void Wakeup::wake() const noexcept {
  constexpr std::uint64_t kOne = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t n_written = ::write(fd_.get(), &kOne, sizeof(kOne));
}

void Wakeup::clear() const noexcept {
  std::uint64_t count = 0;
  // Fails only when there was none.
  [[maybe_unused]] const ssize_t n_read = ::read(fd_.get(), &count, sizeof(count));
}

}  // namespace unisono::net
