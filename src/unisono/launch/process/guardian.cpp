#include "unisono/launch/process/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <climits>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/process/channel.h"
#include "unisono/launch/process/children.h"
#include "unisono/launch/process/protocol.h"
#include "unisono/launch/process/spawn.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::seconds kExecTimeout{30};
constexpr std::chrono::seconds kKillTimeout{10};

bool ends_a_program(int signal_number) {
  return signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP;
}

// Some must stay free for the descriptors that come with the next order.
int highest_useful_fd() {
  constexpr rlim_t kFree = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= kFree) {
    return 0;
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur - kFree, INT_MAX));
}

// With the null pointer at the end. An empty argument is none.
std::vector<char*> with_argument(char* const* argv, std::string& argument, std::uint32_t at) {
  std::vector<char*> all;
  for (char* const* each = argv; *each != nullptr; ++each) {
    all.push_back(*each);
  }
  if (!argument.empty()) {
    all.insert(all.begin() + std::min<std::ptrdiff_t>(at, std::ssize(all)), argument.data());
  }
  all.push_back(nullptr);
  return all;
}

// Unless nobody reads, which must not keep the guardian.
void say(const std::string& line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 1) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace

// The signals held back are those that a user may send to everything called "unisono": the
// guardian has to outlive the ranks.
Guardian::Guardian(Channel channel, const char* path, char* const* argv, pid_t agent)
    : channel_(std::move(channel)),
      path_(path),
      argv_(argv),
      agent_(agent),
      signals_({SIGCHLD}, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {}

void Guardian::run() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    throw system_error("prctl(PR_SET_CHILD_SUBREAPER)", errno);
  }
  loop_.add(channel_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) { on_channel(); });
  loop_.add(signals_.fd(), EPOLLIN, [this](std::uint32_t /*events*/) {
    while (signals_.next()) {
      child_ended_ = true;
    }
  });
  while (!channel_.is_closed()) {
    loop_.run_once(Deadline::never());
    // Only after the ranks' own descriptors have told in which order they ended.
    if (std::exchange(child_ended_, false)) {
      reap();
    }
  }
  const bool has_ranks = !workers_.empty();
  (void)kill_descendants({}, Deadline::after(kKillTimeout), [](pid_t, int) {});
  if (has_ranks && has_agent_ended()) {
    say(fmt::format("[unisono run] the launcher (pid {}) was killed; its ranks are ended\n",
                    agent_));
  }
}

// A process that is killed loses its descriptors before its children get another parent.
bool Guardian::has_agent_ended() const {
  constexpr int kMostMs = 100;
  const Fd agent = open_pidfd(agent_);
  pollfd ended{agent.get(), POLLIN, 0};
  if (agent.is_open() && ::getppid() == agent_) {
    ::poll(&ended, 1, kMostMs);
  }
  return ::getppid() != agent_;
}

void Guardian::on_channel() {
  while (std::optional<Received> received = channel_.receive()) {
    if (const auto* order = std::get_if<Spawn>(&received->message)) {
      start(*order, received->fds);
    } else if (const auto* signal = std::get_if<Signal>(&received->message)) {
      signal_all(signal->signal_number);
    } else if (std::holds_alternative<KillAll>(received->message)) {
      kill_all();
    }
  }
}

void Guardian::start(const Spawn& order, std::span<const Fd> stdio) {
  UNISONO_CHECK(stdio.size() == 3, "a rank needs three standard descriptors");
  std::vector<std::string> entries = merge_environment(environ, order.environment);
  const std::vector<char*> environment = pointers(entries);
  std::string argument = order.argument;
  std::vector<char*> argv = with_argument(argv_, argument, order.argument_at);
  const SpawnRequest request{.path = path_,
                             .argv = argv.data(),
                             .environment = environment.data(),
                             .stdio = {stdio[0].get(), stdio[1].get(), stdio[2].get()},
                             .kept_fd = -1,
                             .death_signal = SIGKILL,
                             .group = SpawnRequest::Group::kNew,
                             .cores = order.cores,
                             .signal_mask = signals_.original_mask()};
  const SpawnResult result = spawn(request, channel_.fd(), Deadline::after(kExecTimeout));
  if (result.error_number != 0) {
    channel_.send(SpawnFailed{order.local_rank, result.error_number, result.is_of_cores}, true);
    return;
  }
  Worker& worker = workers_[result.pid];
  worker.local_rank = order.local_rank;
  watch_end(result.pid, worker);
  channel_.send(Started{order.local_rank, result.pid}, true);
}

// SIGCHLD says only that somebody ended; descriptors become ready in the order of the deaths, and
// the rank that failed first is what the user wants to know.
void Guardian::watch_end(pid_t pid, Worker& worker) {
  worker.pidfd = open_pidfd(pid);
  if (worker.pidfd.get() > highest_useful_fd()) {
    worker.pidfd.reset();
  }
  if (worker.pidfd.is_open()) {
    loop_.add(
        worker.pidfd.get(), EPOLLIN, [this, pid](std::uint32_t /*events*/) { reap_worker(pid); });
  }
}

void Guardian::signal_all(int signal_number) {
  for (const auto& [pid, worker] : workers_) {
    if (::kill(-pid, signal_number) != 0) {
      ::kill(pid, signal_number);
    }
    // A stopped process would not even see it.
    if (ends_a_program(signal_number)) {
      ::kill(-pid, SIGCONT);
    }
  }
  if (signal_number != SIGTERM) {
    return;
  }
  for (const pid_t pid : list_children()) {
    if (!workers_.contains(pid)) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);
    }
  }
}

void Guardian::kill_all() {
  for (const auto& [pid, worker] : workers_) {
    ::kill(-pid, SIGKILL);
  }
  const std::vector<pid_t> left = kill_descendants(
      {}, Deadline::after(kKillTimeout), [this](pid_t pid, int status) { on_reaped(pid, status); });
  if (left.empty()) {
    channel_.send(Idle{}, true);
  } else {
    channel_.send(Stuck{{left.begin(), left.end()}}, true);
  }
}

void Guardian::reap_worker(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) == pid) {
    on_reaped(pid, status);
    child_ended_ = true;
  }
}

void Guardian::on_reaped(pid_t pid, int status) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) {
    return;
  }
  if (found->second.pidfd.is_open()) {
    loop_.remove(found->second.pidfd.get());
  }
  channel_.send(Exited{found->second.local_rank, status}, true);
  workers_.erase(found);
}

void Guardian::reap() {
  const bool has_children =
      reap_children([this](pid_t pid, int status) { on_reaped(pid, status); });
  if (!has_children) {
    channel_.send(Idle{}, true);
  }
}

}  // namespace unisono::launch
