#include "unisono/launch/process/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/prctl.h>
#include <stdlib.h>
#include <sys/epoll.h>  // IWYU pragma: keep
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <climits>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/process/children.h"
#include "unisono/launch/process/spawn.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::seconds kExecTimeout{30};
constexpr std::chrono::seconds kKillTimeout{10};
// Time from SIGTERM to SIGKILL for processes that a rank leaves behind.
constexpr std::chrono::milliseconds kLeftoverGrace{500};
constexpr std::chrono::milliseconds kLeftoverLook{50};

bool ends_a_program(int signal_number) {
  return signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP;
}

// Keeps some descriptors free for the next order, which carries three.
int highest_useful_fd() {
  constexpr rlim_t kFree = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= kFree) {
    return 0;
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur - kFree, INT_MAX));
}

// Returns `argv` with `argument` inserted at `at`, and a null pointer at the end. An empty argument
// is left out.
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

// Writes a line to stderr if that does not block: a reader that has stopped must not block the
// guardian.
void say(const std::string& line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 1) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace

// Holds back signals that a user may send to all processes called "unisono", because the guardian
// must outlive the ranks.
Guardian::Guardian(
    Channel channel, const char* path, char* const* argv, const sigset_t& signal_mask, pid_t agent)
    : channel_(std::move(channel)),
      path_(path),
      argv_(argv),
      signal_mask_(signal_mask),
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
    // Runs after the pidfds of the ranks, which become ready in the order of the ranks' ends.
    if (std::exchange(child_ended_, false)) {
      reap();
    }
    if (std::exchange(rank_ended_, false) && is_ending_) {
      end_leftovers();
    }
  }
  const bool has_ranks = !workers_.empty();
  (void)kill_descendants({}, Deadline::after(kKillTimeout), [](pid_t, int) {});
  if (has_ranks && has_agent_ended()) {
    say(fmt::format("[unisono run] the launcher (pid {}) was killed; its ranks are ended\n",
                    agent_));
  }
}

// A killed process loses its descriptors before the children get another parent, so this function
// waits a short time for the agent's end.
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
      signal_ranks(signal->signal_number);
    } else if (std::holds_alternative<KillAll>(received->message)) {
      kill_all();
    }
  }
}

void Guardian::start(const Spawn& order, std::span<const Fd> stdio) {
  UNISONO_CHECK(stdio.size() == 3, "a rank needs three standard descriptors");
  if (is_ending_ && workers_.empty()) {  // A new generation begins.
    is_ending_ = false;
    ended_groups_.clear();
    ended_all_ = Deadline::never();
  }
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
                             .signal_mask = signal_mask_};
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

// SIGCHLD does not give an order of ends, but pidfds become ready in that order. The report must
// have the rank that failed first.
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

void Guardian::signal_ranks(int signal_number) {
  const bool is_for_the_end = ends_a_program(signal_number);
  for (auto& [pid, worker] : workers_) {
    if (!worker.status) {
      worker.programs = is_for_the_end ? programs_of_shell(pid) : std::set<pid_t>();
      ::kill(pid, signal_number);
    }
    for (const pid_t program : worker.programs) {
      ::kill(program, signal_number);
    }
    // A stopped process would not handle the signal, and could not answer a rank that waits for it.
    if (is_for_the_end) {
      ::kill(-pid, SIGCONT);
    }
  }
  if (is_for_the_end) {
    begin_end();
  }
}

void Guardian::begin_end() {
  if (!is_ending_) {
    is_ending_ = true;
    ended_all_ = Deadline::after(kLeftoverGrace);
    for (auto& [group, last_moment] : ended_groups_) {
      last_moment = ended_all_;
    }
  }
  end_leftovers();
}

// Returns the time at which `child` is killed; Deadline::never() for a running rank and for a
// process that a running rank may still need.
Deadline Guardian::last_moment(pid_t child) const {
  const pid_t group = ::getpgid(child);
  if (workers_.contains(child) || workers_.contains(group)) {
    return Deadline::never();
  }
  const auto ended = ended_groups_.find(group);
  if (ended != ended_groups_.end()) {
    return ended->second;
  }
  return workers_.empty() ? ended_all_ : Deadline::never();
}

// Signals direct children only, because their process IDs cannot be reused. The children of a dead
// child become children of this process.
void Guardian::end_leftovers() {
  bool is_any_left = false;
  for (const pid_t pid : list_children()) {
    const Deadline end = last_moment(pid);
    if (end.is_never()) {
      continue;
    }
    is_any_left = true;
    if (end.has_passed()) {
      ::kill(pid, SIGKILL);
    } else if (asked_.insert(pid).second) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);
    }
  }
  loop_.cancel_timer(leftover_timer_);
  if (is_any_left) {
    leftover_timer_ = loop_.add_timer(Deadline::after(kLeftoverLook), [this] { end_leftovers(); });
  }
}

void Guardian::kill_all() {
  for (const auto& [pid, worker] : workers_) {
    if (!worker.status) {
      ::kill(-pid, SIGKILL);
    }
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
  asked_.erase(pid);
  const auto found = workers_.find(pid);
  if (found != workers_.end() && !found->second.status) {
    take_end(found, status);
    return;
  }
  const auto shell = std::ranges::find_if(workers_, [pid](const Workers::value_type& each) {
    return each.second.status && each.second.programs.contains(pid);
  });
  if (shell != workers_.end()) {
    shell->second.programs.erase(pid);
    take_end(shell, shell->second.status.value_or(status));
  }
}

// Handles the end of a rank's own process, or of a program that the rank ran as a shell.
void Guardian::take_end(Workers::iterator worker, int status) {
  auto& [pid, state] = *worker;
  if (!state.status) {
    if (state.pidfd.is_open()) {
      loop_.remove(state.pidfd.get());
      state.pidfd.reset();
    }
    state.status = status;
  }
  // Programs that are no longer descendants of this process have ended as children of the shell.
  std::erase_if(state.programs, [all = state.programs](pid_t program) {
    const auto stat = read_process_stat(fmt::format("/proc/{}", program));
    return !stat || (stat->parent != ::getpid() && !all.contains(stat->parent));
  });
  if (!state.programs.empty()) {
    return;
  }
  channel_.send(Exited{state.local_rank, status}, true);
  ended_all_ = Deadline::after(kLeftoverGrace);
  ended_groups_.insert_or_assign(pid, ended_all_);
  rank_ended_ = true;
  workers_.erase(worker);
}

void Guardian::reap() {
  const bool has_children =
      reap_children([this](pid_t pid, int status) { on_reaped(pid, status); });
  if (!has_children) {
    channel_.send(Idle{}, true);
  }
}

}  // namespace unisono::launch
