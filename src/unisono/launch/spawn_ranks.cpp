#include "unisono/launch/spawn_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/cores.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/process.h"
#include "unisono/base/random_hex.h"
#include "unisono/base/thread.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/process/spawn.h"
#include "unisono/launch/report.h"
#include "unisono/net/address.h"
#include "unisono/net/loopback.h"
#include "unisono/store/tcp_host.h"

namespace unisono {
namespace {

// "CALL RANK FD": which of the program's calls this process is a rank of, and where it says what it
// has thrown.
constexpr const char* kSpawned = "UNISONO_SPAWNED";
constexpr std::chrono::seconds kExecTimeout{30};
constexpr std::size_t kMaxReasonBytes = 4096;

std::atomic<int> n_calls{0};
std::atomic<bool> is_in_rank{false};

struct Spawned {
  int call = 0;
  int rank = 0;
  int reason_fd = -1;
};

std::optional<Spawned> read_spawned() {
  const std::optional<std::string> text = process_environment()(kSpawned);
  std::istringstream words(text.value_or(""));
  Spawned spawned;
  words >> spawned.call >> spawned.rank >> spawned.reason_fd;
  return words ? std::optional(spawned) : std::nullopt;
}

void write_reason(int fd, const std::string& reason) {
  const std::string text = reason.substr(0, kMaxReasonBytes);
  [[maybe_unused]] const ssize_t n_written = ::write(fd, text.data(), text.size());
}

// The rank's whole life after the call.
// NOLINTBEGIN(concurrency-mt-unsafe): it has one thread before fn, and the program's end is meant.
[[noreturn]] void run_rank(const std::function<void(int)>& fn, const Spawned& spawned) {
  ::unsetenv(kSpawned);
  ::fcntl(spawned.reason_fd, F_SETFD, FD_CLOEXEC);
  is_in_rank = true;
  try {
    fn(spawned.rank);
  } catch (const std::exception& error) {
    write_reason(spawned.reason_fd, error.what());
    std::exit(EXIT_FAILURE);
  } catch (...) {
    write_reason(spawned.reason_fd, "something that is no std::exception");
    std::exit(EXIT_FAILURE);
  }
  std::exit(EXIT_SUCCESS);
}

// NOLINTEND(concurrency-mt-unsafe)

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  return arguments;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

// A thread of its own starts the ranks and lives as long as they do: the kernel ends them with the
// thread that started them.
class SpawnContext::Ranks {
 public:
  Ranks(int call, const SpawnOptions& options);
  ~Ranks();

  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Ranks(Ranks&&) = delete;
  Ranks& operator=(Ranks&&) = delete;

  // Throws what went wrong at the start.
  void wait_until_started();

  // False when the deadline has passed.
  bool wait(Deadline deadline);

  [[nodiscard]] const std::optional<SpawnError>& failure() const { return failure_; }

  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  struct Rank {
    pid_t pid = -1;
    Fd end;     // Becomes readable when the process ends.
    Fd reason;  // What it has thrown.
    int status = 0;
    bool is_running = false;
  };

  void supervise();
  void start_all();
  void start(int rank, const launch::JobLayout& job);
  void wait_for_ends(Deadline deadline);
  void reap(std::size_t rank);
  void end_all(int signal_number);
  [[nodiscard]] bool is_any_running() const;
  [[nodiscard]] launch::JobLayout make_layout() const;

  int call_;
  SpawnOptions options_;
  sigset_t signal_mask_{};
  std::string secret_;
  store::TcpStoreHost store_;
  std::vector<Rank> ranks_;
  Fd stop_read_;
  Fd stop_write_;  // Closed when the ranks are to end.
  bool is_ending_ = false;
  Deadline kill_ = Deadline::never();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool has_started_ = false;
  bool is_over_ = false;
  std::exception_ptr problem_;
  std::optional<SpawnError> failure_;
  std::vector<pid_t> pids_;
  std::thread thread_;
};

SpawnContext::Ranks::Ranks(int call, const SpawnOptions& options)
    : call_(call),
      options_(options),
      secret_(random_hex(32)),
      store_({.address = net::resolve(net::loopback_host(), 0).front(),
              .secret = secret_,
              .notes_turned_away = true,
              .logger = Logger("store")}),
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

SpawnContext::Ranks::~Ranks() {
  if (options_.daemon) {
    stop_write_.reset();
  }
  thread_.join();
}

void SpawnContext::Ranks::wait_until_started() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_started_; });
  if (problem_) {
    std::rethrow_exception(problem_);
  }
}

bool SpawnContext::Ranks::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (deadline.is_never()) {
    changed_.wait(lock, [this] { return is_over_; });
    return true;
  }
  return changed_.wait_until(lock, deadline.time(), [this] { return is_over_; });
}

std::vector<pid_t> SpawnContext::Ranks::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

void SpawnContext::Ranks::supervise() {
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
      end_all(SIGKILL);
    }
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

launch::JobLayout SpawnContext::Ranks::make_layout() const {
  const Environment environment = process_environment();
  launch::JobLayout job;
  job.master_addr = net::loopback_host();
  job.master_port = store_.address().port();
  job.local_world_size = options_.nprocs;
  job.world_size = options_.nprocs;
  job.run_id = random_hex(8);
  job.secret = secret_;
  job.sets_nccl_errors = !environment("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  if (!environment("OMP_NUM_THREADS")) {
    job.omp_threads = std::max(1, available_cores() / options_.nprocs);
  }
  return job;
}

void SpawnContext::Ranks::start_all() {
  const launch::JobLayout job = make_layout();
  for (int rank = 0; rank < options_.nprocs; ++rank) {
    start(rank, job);
  }
}

void SpawnContext::Ranks::start(int rank, const launch::JobLayout& job) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw system_error(fmt::format("spawn: cannot make a pipe for rank {}", rank), errno);
  }
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  state.reason = Fd(ends[0]);
  const Fd reason(ends[1]);
  std::vector<std::string> variables = launch::worker_environment(job, rank);
  variables.push_back(fmt::format("{}={} {} {}", kSpawned, call_, rank, reason.get()));
  std::vector<std::string> entries = launch::merge_environment(environ, variables);
  std::vector<std::string> arguments = own_arguments();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const launch::SpawnResult result =
      launch::spawn({.path = "/proc/self/exe",
                     .argv = pointers(arguments).data(),
                     .environment = pointers(entries).data(),
                     .stdio = {null.get(), STDOUT_FILENO, STDERR_FILENO},
                     .kept_fd = reason.get(),
                     .death_signal = SIGKILL,
                     .new_session = false,
                     .signal_mask = signal_mask_},
                    -1,
                    Deadline::after(kExecTimeout));
  if (result.error_number != 0) {
    throw system_error(fmt::format("spawn: cannot start rank {}, this program again", rank),
                       result.error_number);
  }
  state.pid = result.pid;
  state.is_running = true;
  state.end = open_pidfd(result.pid);
}

// Where the kernel has no pidfds it looks again and again.
void SpawnContext::Ranks::wait_for_ends(Deadline deadline) {
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

void SpawnContext::Ranks::reap(std::size_t index) {
  Rank& rank = ranks_[index];
  if (::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) {
    return;
  }
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
                  : launch::describe_end(rank.status);
  {
    const std::lock_guard lock(mutex_);
    failure_.emplace(fmt::format("spawn: rank {} (pid {}) failed: {}", index, rank.pid, thrown),
                     static_cast<int>(index),
                     launch::exit_code(rank.status));
  }
  end_all(SIGTERM);
}

void SpawnContext::Ranks::end_all(int signal_number) {
  for (const Rank& rank : ranks_) {
    if (rank.is_running) {
      ::kill(-rank.pid, signal_number);
      ::kill(rank.pid, SIGCONT);
    }
  }
  if (signal_number == SIGTERM) {
    kill_ = Deadline::after(options_.grace);
  }
}

bool SpawnContext::Ranks::is_any_running() const {
  return std::ranges::any_of(ranks_, &Rank::is_running);
}

SpawnContext::SpawnContext() = default;

SpawnContext::SpawnContext(std::unique_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}

SpawnContext::SpawnContext(SpawnContext&& other) noexcept = default;
SpawnContext& SpawnContext::operator=(SpawnContext&& other) noexcept = default;
SpawnContext::~SpawnContext() = default;

bool SpawnContext::join(std::optional<std::chrono::milliseconds> timeout) {
  if (ranks_ == nullptr) {
    return true;
  }
  if (!ranks_->wait(timeout ? Deadline::after(*timeout) : Deadline::never())) {
    return false;
  }
  if (const std::optional<SpawnError>& failure = ranks_->failure()) {
    throw SpawnError(*failure);
  }
  return true;
}

std::vector<pid_t> SpawnContext::pids() const {
  return ranks_ == nullptr ? std::vector<pid_t>() : ranks_->pids();
}

SpawnContext spawn_ranks(const std::function<void(int)>& fn, const SpawnOptions& options) {
  if (is_in_rank) {
    throw Error(ErrorCode::kInvalidArgument, "spawn: a rank can't spawn others");
  }
  if (options.nprocs < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("spawn: nprocs is {}: at least 1", options.nprocs));
  }
  const int call = ++n_calls;
  if (const std::optional<Spawned> spawned = read_spawned()) {
    if (spawned->call == call) {
      run_rank(fn, *spawned);
    }
    return {};  // It is over in the program whose rank this process is.
  }
  auto ranks = std::make_unique<SpawnContext::Ranks>(call, options);
  ranks->wait_until_started();
  SpawnContext context(std::move(ranks));
  if (options.join) {
    (void)context.join();
  }
  return context;
}

}  // namespace unisono
