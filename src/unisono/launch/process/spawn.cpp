#include "unisono/launch/process/spawn.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::launch {
namespace {

// In the child. Returns only when something failed, with errno set.
void become(const SpawnRequest& request, pid_t parent) {
  // The parent may have ended before the kernel knew that we want to hear of it.
  if (::prctl(PR_SET_PDEATHSIG, request.death_signal) != 0 || ::getppid() != parent) {
    return;
  }
  if (request.group == SpawnRequest::Group::kNew && ::setpgid(0, 0) != 0) {
    return;
  }
  for (int target = 0; target < 3; ++target) {
    if (::dup2(request.stdio[static_cast<std::size_t>(target)], target) < 0) {
      return;
    }
  }
  if (request.kept_fd >= 0 && ::fcntl(request.kept_fd, F_SETFD, 0) != 0) {
    return;
  }
  ::pthread_sigmask(SIG_SETMASK, &request.signal_mask, nullptr);
  ::execve(request.path, request.argv, request.environment);
}

// Waits for the child's verdict: end of file means that exec closed the pipe.
int wait_for_exec(int pipe_fd, int canceling_fd, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> fds{{{pipe_fd, POLLIN, 0}, {canceling_fd, 0, 0}}};
    const int n_ready = ::poll(fds.data(), fds.size(), deadline.poll_timeout_ms());
    if (n_ready < 0 && errno != EINTR) {
      return errno;
    }
    if (n_ready > 0 && fds[0].revents != 0) {
      int error_number = 0;
      const ssize_t n_bytes = ::read(pipe_fd, &error_number, sizeof error_number);
      return n_bytes == static_cast<ssize_t>(sizeof error_number) ? error_number : 0;
    }
    if (n_ready > 0 && fds[1].revents != 0) {
      return ECANCELED;
    }
    if (deadline.has_passed()) {
      return ETIMEDOUT;
    }
  }
}

}  // namespace

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

SpawnResult spawn(const SpawnRequest& request, int canceling_fd, Deadline deadline) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return {.pid = -1, .error_number = errno};
  }
  const Fd verdict(ends[0]);
  Fd childs_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return {.pid = -1, .error_number = errno};
  }
  if (pid == 0) {
    become(request, parent);
    const int error_number = errno;
    [[maybe_unused]] const ssize_t written =
        ::write(childs_end.get(), &error_number, sizeof error_number);
    ::_exit(127);
  }
  childs_end.reset();
  const int error_number = wait_for_exec(verdict.get(), canceling_fd, deadline);
  if (error_number == 0) {
    return {.pid = pid, .error_number = 0};
  }
  ::kill(pid, SIGKILL);
  // A child that hangs in exec (a file server that is away) is left to be reaped when it can.
  if (error_number != ETIMEDOUT && error_number != ECANCELED) {
    ::waitpid(pid, nullptr, 0);
  }
  return {.pid = -1, .error_number = error_number};
}

}  // namespace unisono::launch
