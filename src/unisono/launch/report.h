#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/fd.h"

namespace unisono::launch {

/// Exit code of a launcher that failed for a reason of its own.
inline constexpr int kLauncherFailed = 1;

/// Exit code of a job that ended because a rank kept the other ranks waiting for too long.
/// timeout(1) uses the same code.
inline constexpr int kGivenUp = 124;

/// The reason for which a job or a generation ended before all its ranks were done.
struct Cause {
  int exit_code;
  /// Worker that failed; std::nullopt for another reason, described by `message`.
  std::optional<std::size_t> failed_worker;
  std::string message;
  bool is_lost_guardian = false;  ///< The ranks may be restarted, as after the failure of a rank.
};

/// Returns the cause for a signal that the launcher received.
[[nodiscard]] Cause signal_cause(int signal_number);

/// Returns the cause for a guardian that was killed. `host` names this node; empty if the job has
/// one node.
[[nodiscard]] Cause lost_guardian_cause(pid_t guardian, const std::string& host);

/// Returns "0-2,7" for sorted ranks.
[[nodiscard]] std::string rank_ranges(std::span<const int> ranks, std::string_view separator = ",");

/// The exit code of a shell for a process that signal s ended is kSignalBase + s.
inline constexpr int kSignalBase = 128;

/// State of a rank, as the agent records it.
struct WorkerRecord {
  enum class State { kNotStarted, kRunning, kEnded };

  int rank = 0;
  pid_t pid = 0;
  State state = State::kNotStarted;
  int status = 0;                       ///< Status of wait(2), after the end.
  std::chrono::nanoseconds lifetime{};  ///< Set after the end.
  bool ended_by_us = false;  ///< The rank was still running when the agent began to end all ranks.
  std::string error = {};    ///< The exception that the rank has left in its ErrorFile.
  /// Reason for which a running rank counts as failed; empty: it does not.
  std::string given_up = {};
  std::string waits = {};  ///< Waits for a late rank, one line for each operation.
};

/// Returns the exit code that a shell reports for such a status: the code, or 128 + the number of
/// the signal.
[[nodiscard]] int exit_code(int wait_status);

/// Returns "exit code 3" or "killed by SIGSEGV".
[[nodiscard]] std::string describe_end(int wait_status);

/// Further information about a failure.
struct FailureContext {
  /// Returns the last lines of a worker; a single line if the user has seen all lines.
  std::function<std::deque<std::string>(std::size_t worker)> last_lines;
  std::string host = {};       ///< Name of this node; empty if the job has one node.
  std::string kill_note = {};  ///< Origin of the SIGKILL that ended the rank.
};

/// Returns the message about a job that ended because of `workers[first]`: rank, end, time,
/// exception, last lines, and the ends of the other ranks. If the rank wrote no lines, the message
/// has the lines of the next failed rank that did.
[[nodiscard]] std::string failure_report(std::span<const WorkerRecord> workers,
                                         std::size_t first,
                                         const FailureContext& context);

/// Returns "rank 3 (pid 4123) failed after 2.0 s: exit code 1", with the host if `host` is not
/// empty.
[[nodiscard]] std::string describe_failed_rank(const WorkerRecord& failed,
                                               const std::string& host = "");

/// Returns the message about the restarts that a job has used. `failures` has a line for the cause
/// of each restart.
[[nodiscard]] std::string restart_report(std::span<const std::string> failures, int max_restarts);

/// Returns " 17 4711" for a list of process IDs.
[[nodiscard]] std::string pid_list(std::span<const pid_t> pids);

/// Returns "ranks 0, 2-5, 7" for sorted ranks.
[[nodiscard]] std::string rank_list(std::span<const int> ranks);

/// File in which a rank leaves the exception that ends the rank, in the format of `@record` of
/// torch.distributed.elastic. The file is an anonymous memfd and disappears with this process.
class ErrorFile {
 public:
  /// Throws Error(kSystem).
  ErrorFile();

  /// Returns the path of the file, the value of the rank's TORCHELASTIC_ERROR_FILE.
  [[nodiscard]] std::string path() const;

  /// Returns the message of the exception ("ValueError: no such data"), at most 64 KiB; empty if
  /// the rank has left no exception.
  [[nodiscard]] std::string message() const;

 private:
  Fd file_;
};

/// Numbers of processes that the kernel has killed for lack of memory; std::nullopt if the kernel
/// does not report the number.
struct MemoryKills {
  std::optional<std::uint64_t> group = {};    ///< In the control group of this process.
  std::optional<std::uint64_t> machine = {};  ///< On this machine.
};

/// Returns the numbers up to now. `root` is the prefix of /proc and /sys; only tests set a prefix.
[[nodiscard]] MemoryKills count_memory_kills(const std::string& root = "");

/// Returns the likely reason for a SIGKILL between the two counts.
[[nodiscard]] std::string describe_kill(const MemoryKills& before, const MemoryKills& after);

}  // namespace unisono::launch
