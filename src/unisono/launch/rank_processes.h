#pragma once

#include <signal.h>
#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/spawn_ranks.h"
#include "unisono/store/tcp_host.h"

namespace unisono::launch {

/// What a rank of spawn() finds in its environment.
struct Spawned {
  int call = 0;  ///< Which of the program's calls it is a rank of, from 1.
  int rank = 0;
  int reason_fd = -1;  ///< Where it writes what it has thrown.
};

/// The variable's name.
inline constexpr const char* kSpawnedVariable = "UNISONO_SPAWNED";

/// Of a reason, so many bytes are passed on.
inline constexpr std::size_t kMaxReasonBytes = 4096;

/// Nothing in a process that spawn() has not started.
[[nodiscard]] std::optional<Spawned> read_spawned(const Environment& environment);

/// The ranks of a call of spawn(): starts them, and ends all when one fails. A thread of its own
/// starts them and lives as long as they do, since the kernel ends them with the thread that
/// started them. Thread-safe.
class RankProcesses {
 public:
  RankProcesses(int call, const SpawnOptions& options);

  /// Ends the ranks where options.daemon says so, and waits for them.
  ~RankProcesses();

  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  RankProcesses(RankProcesses&&) = delete;
  RankProcesses& operator=(RankProcesses&&) = delete;

  /// Throws what went wrong at the start.
  void wait_until_started();

  /// Waits for all ends; false when the deadline has passed.
  [[nodiscard]] bool wait(Deadline deadline);

  /// The first rank that failed; once all have ended.
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
  void start(int rank, const JobLayout& job);
  void wait_for_ends(Deadline deadline);
  void reap(std::size_t rank);
  void say_who_is_killed() const;
  void end_all(int signal_number);
  [[nodiscard]] bool is_any_running() const;
  [[nodiscard]] JobLayout make_layout() const;

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

}  // namespace unisono::launch
