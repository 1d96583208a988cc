#pragma once

#include "unisono/base/fd.h"

namespace unisono::launch {

/// A terminal for a rank's output: the rank writes to `slave`, we read from `master`.
struct Pty {
  Fd master;
  Fd slave;
};

/// Makes a terminal that passes bytes on as they are, of the size of `like_fd` (-1: any).
[[nodiscard]] Pty open_pty(int like_fd);

/// Gives `master` the size of the terminal `like_fd`.
void copy_size(int like_fd, int master);

}  // namespace unisono::launch
