#include "unisono/base/fd.h"

#include <unistd.h>

#include <utility>

namespace unisono {

void Fd::reset() noexcept {
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

}  // namespace unisono
