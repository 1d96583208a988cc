#include "unisono/launch/process/spawn.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <sched.h>
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "unisono/base/fd.h"

namespace unisono::launch {
namespace {

// A set of processors for sched_setaffinity(2).
class CpuSet {
 public:
  explicit CpuSet(std::span<const int> cores) {
    if (cores.empty()) {
      return;
    }
    const auto n_processors = static_cast<std::size_t>(*std::ranges::max_element(cores)) + 1;
    n_bytes_ = CPU_ALLOC_SIZE(n_processors);
    set_.reset(CPU_ALLOC(n_processors));
    CPU_ZERO_S(n_bytes_, set_.get());
    for (const int core : cores) {
      CPU_SET_S(static_cast<std::size_t>(core), n_bytes_, set_.get());
    }
  }

  // Async-signal-safe. Returns false, with errno set, if the binding failed.
  [[nodiscard]] bool bind_this_thread() const {
    return set_ == nullptr || ::sched_setaffinity(0, n_bytes_, set_.get()) == 0;
  }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };

  std::size_t n_bytes_ = 0;
  std::unique_ptr<cpu_set_t, Free> set_;
};

// Written by the child if it does not become the program.
struct Verdict {
  int error_number = 0;
  bool is_of_cores = false;
};

// Runs in the child. Returns only after a failure, with errno set; returns true if the binding
// failed.
bool become(const SpawnRequest& request, const CpuSet& cores, pid_t parent) {
  // The parent may have ended before the kernel recorded the death signal.
  if (::prctl(PR_SET_PDEATHSIG, request.death_signal) != 0 || ::getppid() != parent) {
    return false;
  }
  if (!cores.bind_this_thread()) {
    return true;
  }
  if (request.group == SpawnRequest::Group::kNew && ::setpgid(0, 0) != 0) {
    return false;
  }
  for (int target = 0; target < 3; ++target) {
    if (::dup2(request.stdio[static_cast<std::size_t>(target)], target) < 0) {
      return false;
    }
  }
  if (request.kept_fd >= 0 && ::fcntl(request.kept_fd, F_SETFD, 0) != 0) {
    return false;
  }
  ::pthread_sigmask(SIG_SETMASK, &request.signal_mask, nullptr);
  ::execve(request.path, request.argv, request.environment);
  return false;
}

// Waits for the child's verdict. The end of the file means that exec closed the pipe.
Verdict wait_for_exec(int pipe_fd, int canceling_fd, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> fds{{{pipe_fd, POLLIN, 0}, {canceling_fd, 0, 0}}};
    const int n_ready = ::poll(fds.data(), fds.size(), deadline.poll_timeout_ms());
    if (n_ready < 0 && errno != EINTR) {
      return {.error_number = errno};
    }
    if (n_ready > 0 && fds[0].revents != 0) {
      Verdict verdict;
      const ssize_t n_bytes = ::read(pipe_fd, &verdict, sizeof verdict);
      return n_bytes == static_cast<ssize_t>(sizeof verdict) ? verdict : Verdict{};
    }
    if (n_ready > 0 && fds[1].revents != 0) {
      return {.error_number = ECANCELED};
    }
    if (deadline.has_passed()) {
      return {.error_number = ETIMEDOUT};
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
  const Fd parents_end(ends[0]);
  Fd childs_end(ends[1]);
  const CpuSet cores(request.cores);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return {.pid = -1, .error_number = errno};
  }
  if (pid == 0) {
    Verdict failure;
    failure.is_of_cores = become(request, cores, parent);
    failure.error_number = errno;
    [[maybe_unused]] const ssize_t written = ::write(childs_end.get(), &failure, sizeof failure);
    ::_exit(127);
  }
  childs_end.reset();
  const Verdict verdict = wait_for_exec(parents_end.get(), canceling_fd, deadline);
  if (verdict.error_number == 0) {
    return {.pid = pid};
  }
  ::kill(pid, SIGKILL);
  // A child that hangs in exec (an unavailable file server) is reaped later.
  if (verdict.error_number != ETIMEDOUT && verdict.error_number != ECANCELED) {
    ::waitpid(pid, nullptr, 0);
  }
  return {.pid = -1, .error_number = verdict.error_number, .is_of_cores = verdict.is_of_cores};
}

}  // namespace unisono::launch
