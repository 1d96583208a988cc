#include "unisono/launch/process/guardian_link.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/children.h"
#include "unisono/launch/process/spawn.h"
#include "unisono/launch/program.h"
#include "unisono/launch/run.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::seconds kStartTimeout{30};
constexpr std::chrono::seconds kEndTimeout{11};
constexpr std::chrono::seconds kKillTimeout{5};

}  // namespace

GuardianLink::GuardianLink(const Program& program, const sigset_t& original_mask) : channel_(Fd()) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    throw system_error("prctl(PR_SET_CHILD_SUBREAPER)", errno);
  }
  // A shell that became us by exec may have left us its own children.
  const std::vector<pid_t> children = list_children();
  spared_ = {children.begin(), children.end()};
  auto [ours, guardians] = Channel::make_pair();
  std::vector<std::string> arguments{
      "unisono", kGuardianArgument, std::to_string(guardians.fd()), program.path};
  arguments.insert(arguments.end(), program.argv.begin(), program.argv.end());
  const std::vector<char*> argv = pointers(arguments);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  // The guardian outlives us on purpose, to clean up. SIGCONT wakes it for that if it is stopped.
  const SpawnRequest request{.path = "/proc/self/exe",
                             .argv = argv.data(),
                             .environment = environ,
                             .stdio = {null.get(), null.get(), STDERR_FILENO},
                             .kept_fd = guardians.fd(),
                             .death_signal = SIGCONT,
                             .group = SpawnRequest::Group::kNewSession,
                             .signal_mask = original_mask};
  const SpawnResult result = spawn(request, -1, Deadline::after(kStartTimeout));
  if (result.error_number != 0) {
    throw system_error("cannot start the guardian process from /proc/self/exe",
                       result.error_number);
  }
  pid_ = result.pid;
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
    (void)wait_for_guardian(Deadline::after(kKillTimeout));
  }
  pid_ = -1;
  return kill_descendants(spared_, Deadline::after(kKillTimeout), on_reaped);
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
