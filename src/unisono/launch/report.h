#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>

namespace unisono::launch {

/// A shell's exit code for a process that signal s ended is this + s.
inline constexpr int kSignalBase = 128;

/// What the agent knows of a rank.
struct WorkerRecord {
  enum class State { kNotStarted, kRunning, kEnded };

  int rank = 0;
  pid_t pid = 0;
  State state = State::kNotStarted;
  int status = 0;                       ///< As wait(2) gives it, once ended.
  std::chrono::nanoseconds lifetime{};  ///< Once ended.
  bool ended_by_us = false;             ///< It was still running when we began to end all.
  std::string error = {};               ///< The exception that it has left in its ErrorFile.
  std::string given_up = {};  ///< Why it counts as failed though it ran; empty: it does not.
  std::string waits = {};     ///< Then who waited for it: a line for each operation.
};

/// What a shell says for such a status: the exit code, or 128 + the signal's number.
[[nodiscard]] int exit_code(int wait_status);

/// "exit code 3" or "killed by SIGSEGV".
[[nodiscard]] std::string describe_end(int wait_status);

/// What else there is to say of a failure.
struct FailureContext {
  /// What each of the workers wrote last; a single line where the user has seen it all.
  std::function<std::deque<std::string>(std::size_t worker)> last_lines;
  std::string host = {};       ///< This node; empty where it is the only one.
  std::string kill_note = {};  ///< Of a rank that SIGKILL ended: where it came from.
};

/// The message about a job that ended because of `workers[first]`: who, how, when, its exception,
/// its last lines, or those of the next one that failed and wrote some, what became of the others.
[[nodiscard]] std::string failure_report(std::span<const WorkerRecord> workers,
                                         std::size_t first,
                                         const FailureContext& context);

/// "rank 3 (pid 4123) failed after 2.0 s: exit code 1"; with the host, if one is given.
[[nodiscard]] std::string describe_failed_rank(const WorkerRecord& failed,
                                               const std::string& host = "");

/// The message about the restarts that a job has used, `failures` being what made each of them
/// necessary, one line each.
[[nodiscard]] std::string restart_report(std::span<const std::string> failures, int max_restarts);

/// " 17 4711" for process ids.
[[nodiscard]] std::string pid_list(std::span<const pid_t> pids);

/// "ranks 0, 2-5, 7" for sorted ranks.
[[nodiscard]] std::string rank_list(std::span<const int> ranks);

}  // namespace unisono::launch
