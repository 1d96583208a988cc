#include "unisono/launch/process/guardian_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/launch/process/guardian.h"
#include "unisono/launch/process/spawn.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::seconds kEndTimeout{11};
constexpr std::chrono::seconds kGuardianKillTimeout{5};

// Closes the descriptors that exec would have closed, except `kept`, because they belong to the
// parent. Also removes the numbers from the set of unshared descriptors: the ranks' outputs will
// reuse the numbers, and the children of a fork must inherit these.
void close_private_descriptors(int kept) {
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    open.push_back(std::stoi(entry.path().filename()));
  }
  for (const int fd : open) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (fd != kept && flags >= 0 && (flags & FD_CLOEXEC) != 0) {
      detail::close_unshared_fd(fd);
    }
  }
}

void take_null_as_stdin_and_stdout() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open() || ::dup2(null.get(), STDIN_FILENO) < 0 ||
      ::dup2(null.get(), STDOUT_FILENO) < 0) {
    throw system_error("/dev/null can't become the guardian's stdin and stdout", errno);
  }
}

// Overwrites the command line that ps(1) and pgrep(1) show, in the memory where exec has put it. A
// longer name is truncated.
void name_command_line(const std::string& name) {
  constexpr int kArgumentsBegin = 48;  // Fields of proc_pid_stat(5).
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < kArgumentsBegin; ++field) {
    fields >> skipped;
  }
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  fields >> begin >> end;
  if (!fields || begin >= end) {
    return;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives addresses as numbers.
  const std::span<char> memory(reinterpret_cast<char*>(begin), end - begin);
  std::ranges::fill(memory, '\0');
  std::ranges::copy(std::string_view(name).substr(0, memory.size() - 1), memory.begin());
}

// Runs in the child. The guardian outlives the agent on purpose, to clean up; SIGCONT wakes a
// stopped guardian for that.
int be_guardian(Channel channel, const Program& program, const sigset_t& signal_mask, pid_t agent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGCONT) != 0 || ::getppid() != agent) {
    return 1;  // The agent may have ended before the kernel recorded the death signal.
  }
  ::prctl(PR_SET_NAME, kGuardianName);
  name_command_line(fmt::format("{}: parent of the ranks of process {}", kGuardianName, agent));
  ::setsid();
  close_private_descriptors(channel.fd());
  take_null_as_stdin_and_stdout();
  std::vector<std::string> arguments = program.argv;
  const std::vector<char*> argv = pointers(arguments);
  Guardian(std::move(channel), program.path.c_str(), argv.data(), signal_mask, agent).run();
  return 0;
}

}  // namespace

GuardianLink::GuardianLink(const Program& program) : program_(program), channel_(Fd()) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    throw system_error("prctl(PR_SET_CHILD_SUBREAPER)", errno);
  }
  // A shell that became this process by exec may have left its own children.
  const std::vector<pid_t> children = list_children();
  spared_ = {children.begin(), children.end()};
  ::pthread_sigmask(SIG_SETMASK, nullptr, &signal_mask_);
  start();
}

void GuardianLink::start() {
  auto [ours, guardians] = Channel::make_pair();
  const pid_t agent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw system_error("the guardian process can't be started: fork", errno);
  }
  if (pid_ == 0) {
    try {
      ::_exit(be_guardian(std::move(guardians), program_, signal_mask_, agent));
    } catch (const std::exception& error) {
      fmt::print(stderr, "unisono: the guardian process can't continue: {}\n", error.what());
      ::_exit(1);
    }
  }
  channel_ = std::move(ours);
}

GuardianLink::~GuardianLink() {
  (void)end([](pid_t, int) {});
}

void GuardianLink::wake() const {
  if (pid_ > 0) {
    ::kill(pid_, SIGCONT);
  }
}

void GuardianLink::kill() const {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
  }
}

std::vector<pid_t> GuardianLink::end(const OnReaped& on_reaped) {
  if (pid_ < 0) {
    return {};
  }
  channel_ = Channel(Fd());
  if (!wait_for_guardian(Deadline::after(kEndTimeout))) {
    kill();
    (void)wait_for_guardian(Deadline::after(kGuardianKillTimeout));
  }
  pid_ = -1;
  return kill_descendants(spared_, Deadline::after(kGuardianKillTimeout), on_reaped);
}

bool GuardianLink::wait_for_guardian(Deadline deadline) const {
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (deadline.has_passed()) {
      return false;
    }
    wake();
    wait_for_child_signal();
  }
  return true;
}

}  // namespace unisono::launch
