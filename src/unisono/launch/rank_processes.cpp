#include "unisono/launch/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/base/thread.h"
#include "unisono/launch/grace_period.h"
#include "unisono/launch/process/spawn.h"
#include "unisono/launch/report.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"

namespace unisono::launch {
namespace {

constexpr std::chrono::seconds kStartTimeout{30};

std::string to_variable(const Spawned& spawned) {
  return fmt::format(
      "{}={} {} {}", kSpawnedVariable, spawned.call, spawned.rank, spawned.reason_fd);
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  return arguments;
}

}  // namespace

std::optional<Spawned> read_spawned(const Environment& environment) {
  std::istringstream words(environment(kSpawnedVariable).value_or(""));
  Spawned spawned;
  words >> spawned.call >> spawned.rank >> spawned.reason_fd;
  return words ? std::optional(spawned) : std::nullopt;
}

RankProcesses::RankProcesses(int call, const SpawnOptions& options)
    : call_(call),
      options_(options),
      secret_(random_hex(32)),
      store_({.address = net::resolve(net::loopback_host(), 0).front(),
              .secret = secret_,
              .notes_turned_away = true,
              .logger = base::Logger("store")}),
      ranks_(static_cast<std::size_t>(options.nprocs)) {
  ::pthread_sigmask(SIG_SETMASK, nullptr, &signal_mask_);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw system_error("spawn: cannot make a pipe", errno);
  }
  stop_read_ = Fd(ends[0]);
  stop_write_ = Fd(ends[1]);
  thread_ = start_thread(
      "unisono-spawn", "spawn can't start the thread that starts ranks", [this] { supervise(); });
}

RankProcesses::~RankProcesses() {
  if (options_.daemon) {
    stop_write_.reset();
  }
  thread_.join();
}

void RankProcesses::wait_until_started() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_started_; });
  if (problem_) {
    std::rethrow_exception(problem_);
  }
}

bool RankProcesses::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (deadline.is_never()) {
    changed_.wait(lock, [this] { return is_over_; });
    return true;
  }
  return changed_.wait_until(lock, deadline.time(), [this] { return is_over_; });
}

std::vector<pid_t> RankProcesses::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

void RankProcesses::supervise() {
  try {
    start_all();
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    problem_ = std::current_exception();
    is_ending_ = true;
  }
  {
    const std::lock_guard lock(mutex_);
    for (const Rank& rank : ranks_) {
      pids_.push_back(rank.pid);
    }
    has_started_ = true;
  }
  changed_.notify_all();
  if (is_ending_) {
    end_all(SIGKILL);
  }
  while (is_any_running()) {
    wait_for_ends(kill_);
    if (kill_.has_passed()) {
      kill_ = Deadline::never();
      say_who_is_killed();
      end_all(SIGKILL);
    }
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

JobLayout RankProcesses::make_layout() const {
  JobLayout job = make_node_layout(options_.nprocs, process_environment());
  job.master_addr = net::loopback_host();
  job.master_port = store_.address().port();
  job.secret = secret_;
  return job;
}

void RankProcesses::start_all() {
  const JobLayout job = make_layout();
  for (int rank = 0; rank < options_.nprocs; ++rank) {
    start(rank, job);
  }
}

void RankProcesses::start(int rank, const JobLayout& job) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw system_error(fmt::format("spawn: cannot make a pipe for rank {}", rank), errno);
  }
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  state.reason = Fd(ends[0]);
  const Fd reason(ends[1]);
  std::vector<std::string> variables = worker_environment(job, rank);
  variables.push_back(to_variable({.call = call_, .rank = rank, .reason_fd = reason.get()}));
  std::vector<std::string> entries = merge_environment(environ, variables);
  std::vector<std::string> arguments = own_arguments();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const SpawnResult result = spawn({.path = "/proc/self/exe",
                                    .argv = pointers(arguments).data(),
                                    .environment = pointers(entries).data(),
                                    .stdio = {null.get(), STDOUT_FILENO, STDERR_FILENO},
                                    .kept_fd = reason.get(),
                                    .death_signal = SIGKILL,
                                    .group = SpawnRequest::Group::kNew,
                                    .signal_mask = signal_mask_},
                                   -1,
                                   Deadline::after(kStartTimeout));
  if (result.error_number != 0) {
    throw system_error(fmt::format("spawn: cannot start rank {}, this program again", rank),
                       result.error_number);
  }
  state.pid = result.pid;
  state.is_running = true;
  state.end = open_pidfd(result.pid);
}

// Without pidfds in the kernel, the ranks are polled every 10 ms.
void RankProcesses::wait_for_ends(Deadline deadline) {
  constexpr std::chrono::milliseconds kLook{10};
  std::vector<pollfd> fds{{is_ending_ ? -1 : stop_read_.get(), POLLIN, 0}};
  bool has_all = true;
  for (const Rank& rank : ranks_) {
    fds.push_back({rank.is_running ? rank.end.get() : -1, POLLIN, 0});
    has_all = has_all && (!rank.is_running || rank.end.is_open());
  }
  const Deadline until = has_all ? deadline : earlier(deadline, Deadline::after(kLook));
  ::poll(fds.data(), fds.size(), until.poll_timeout_ms());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].is_running && (fds[rank + 1].revents != 0 || !ranks_[rank].end.is_open())) {
      reap(rank);
    }
  }
  if (fds[0].revents != 0 && !is_ending_) {
    is_ending_ = true;
    end_all(SIGTERM);
  }
}

void RankProcesses::reap(std::size_t index) {
  Rank& rank = ranks_[index];
  siginfo_t end{};
  if (::waitid(P_PID, static_cast<id_t>(rank.pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      end.si_pid != rank.pid) {
    return;
  }
  // The rank may have needed its own processes until now. The process ID is still reserved.
  if (is_ending_ || end.si_code != CLD_EXITED || end.si_status != 0) {
    ::kill(-rank.pid, SIGTERM);
  }
  ::waitpid(rank.pid, &rank.status, 0);
  rank.is_running = false;
  rank.end.reset();
  if (rank.status == 0 || is_ending_) {
    return;
  }
  is_ending_ = true;
  std::array<char, kMaxReasonBytes> buffer{};
  const ssize_t n_bytes = ::read(rank.reason.get(), buffer.data(), buffer.size());
  const std::string thrown =
      n_bytes > 0 ? fmt::format("it threw: {}",
                                std::string(buffer.data(), static_cast<std::size_t>(n_bytes)))
                  : describe_end(rank.status);
  {
    const std::lock_guard lock(mutex_);
    failure_.emplace(fmt::format("spawn: rank {} (pid {}) failed: {}", index, rank.pid, thrown),
                     static_cast<int>(index),
                     exit_code(rank.status));
  }
  end_all(SIGTERM);
}

void RankProcesses::say_who_is_killed() const {
  std::vector<int> late;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].is_running) {
      late.push_back(static_cast<int>(rank));
    }
  }
  base::Logger("spawn").warning(
      describe_killed(late, options_.grace, SIGTERM, "SpawnOptions::grace"));
}

void RankProcesses::end_all(int signal_number) {
  for (const Rank& rank : ranks_) {
    if (rank.is_running) {
      ::kill(signal_number == SIGKILL ? -rank.pid : rank.pid, signal_number);
      ::kill(-rank.pid, SIGCONT);
    }
  }
  if (signal_number == SIGTERM) {
    kill_ = Deadline::after(options_.grace);
  }
}

bool RankProcesses::is_any_running() const {
  return std::ranges::any_of(ranks_, &Rank::is_running);
}

}  // namespace unisono::launch
