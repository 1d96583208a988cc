#include "unisono/launch/output/pty.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"

namespace unisono::launch {

Pty open_pty(int like_fd) {
  int master = -1;
  int slave = -1;
  termios raw{};
  ::cfmakeraw(&raw);
  raw.c_cflag |= CREAD;
  if (::openpty(&master, &slave, nullptr, &raw, nullptr) != 0) {
    throw system_error("cannot open a terminal for a rank's output", errno);
  }
  Pty pty{.master = Fd(master), .slave = Fd(slave)};
  ::fcntl(master, F_SETFD, FD_CLOEXEC);
  ::fcntl(slave, F_SETFD, FD_CLOEXEC);
  copy_size(like_fd, master);
  return pty;
}

void copy_size(int like_fd, int master) {
  winsize size{};
  if (::ioctl(like_fd, TIOCGWINSZ, &size) == 0) {
    ::ioctl(master, TIOCSWINSZ, &size);
  }
}

}  // namespace unisono::launch
