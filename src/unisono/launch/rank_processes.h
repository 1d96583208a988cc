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
#include "unisono/store/tcp_store.h"

namespace unisono::launch {

/// Values in the environment of a rank of spawn().
struct Spawned {
  int call = 0;  ///< Number of the spawn() call in the program, from 1.
  int rank = 0;
  int reason_fd = -1;  ///< Descriptor to which the rank writes the text of an exception.
};

/// Name of the environment variable.
inline constexpr const char* kSpawnedVariable = "UNISONO_SPAWNED";

/// Longest text of an exception that is passed on.
inline constexpr std::size_t kMaxReasonBytes = 4096;

/// Returns std::nullopt in a process that spawn() has not started.
[[nodiscard]] std::optional<Spawned> read_spawned(const Environment& environment);

/// The ranks of a call of spawn(). Starts the ranks, and ends all when a rank fails.
///
/// SpawnContext owns the object. A thread of the object starts the ranks and lives until all have
/// ended, because the kernel ends the ranks together with the thread that started them. The public
/// functions may be called from any thread. wait_until_started() throws the error of the start;
/// failure() has the error of a rank.
class RankProcesses {
 public:
  RankProcesses(int call, const SpawnOptions& options);

  /// Ends the ranks if options.daemon is true, and waits for their ends.
  ~RankProcesses();

  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  RankProcesses(RankProcesses&&) = delete;
  RankProcesses& operator=(RankProcesses&&) = delete;

  /// Waits until all ranks run. Throws the error that prevented a start.
  void wait_until_started();

  /// Waits until all ranks have ended. Returns false if the deadline has passed.
  [[nodiscard]] bool wait(Deadline deadline);

  /// Returns the error of the first rank that failed. Valid once wait() has returned true.
  [[nodiscard]] const std::optional<SpawnError>& failure() const { return failure_; }

  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  struct Rank {
    pid_t pid = -1;
    Fd end;     // Becomes readable when the process ends.
    Fd reason;  // The rank writes the text of its exception here.
    int status = 0;
    bool is_running = false;
  };

  /// Body of the thread: starts the ranks, and waits until all have ended.
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
