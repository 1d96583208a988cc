#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::launch_test {

/// Output and exit code of a `unisono run`.
struct RunResult {
  int exit_code = -1;  ///< 128 + signal if a signal ended the launcher itself.
  std::string out;
  std::string err;
};

struct RunSetup {
  std::vector<std::string> arguments = {};  ///< Arguments of the program.
  /// "NAME=value" extends the inherited environment; "NAME" removes a variable.
  std::vector<std::string> environment = {};
  int stdin_fd = -1;   ///< -1: /dev/null.
  int stdout_fd = -1;  ///< -1: a pipe, and the output is collected.
  int stderr_fd = -1;
  bool close_stdout = false;
  /// `own_session` starts a new session and process group. `terminal` names a terminal that becomes
  /// stdin and controlling terminal of a new session.
  bool own_session = false;
  std::string terminal = {};
  std::string program = UNISONO_PROGRAM;
};

/// A running `unisono` and all its descendants, which are identified by a mark in their
/// environment.
class LaunchRun {
 public:
  explicit LaunchRun(const RunSetup& setup);

  /// Kills all remaining processes, so that a failed test leaves none behind.
  ~LaunchRun();

  LaunchRun(const LaunchRun&) = delete;
  LaunchRun& operator=(const LaunchRun&) = delete;
  LaunchRun(LaunchRun&&) = delete;
  LaunchRun& operator=(LaunchRun&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Reads output until `text` has occurred `n_times` in stdout. Fails the test at the deadline.
  void wait_for_output(const std::string& text, int n_times = 1);

  /// The stdout that has been read so far.
  [[nodiscard]] const std::string& output() const { return result_.out; }

  /// Like wait_for_output(), but for stderr.
  void wait_for_error(const std::string& text);

  /// Waits for the launcher's end and returns all its output.
  RunResult finish();

  /// Processes (no zombies) that carry the mark.
  [[nodiscard]] std::vector<pid_t> marked() const;

  /// Waits until no process carries the mark. Returns the remaining processes at the deadline.
  [[nodiscard]] std::vector<pid_t> wait_until_all_gone() const;

  /// The process ids of the guardians: one guardian for each launcher with ranks.
  [[nodiscard]] std::vector<pid_t> guardians() const;

  /// The process id of the only guardian. Throws std::runtime_error if there is not exactly one
  /// guardian.
  [[nodiscard]] pid_t guardian() const;

 private:
  void read_until(const std::function<bool()>& is_done);

  std::string mark_;
  pid_t pid_ = -1;
  Fd out_;
  Fd err_;
  RunResult result_;
  Deadline deadline_;
};

/// Runs to the end and checks that no process remains.
[[nodiscard]] RunResult run_to_end(const RunSetup& setup);

/// Returns "run", `options`, the probe program and `probe_arguments`.
[[nodiscard]] std::vector<std::string> probe(std::vector<std::string> options,
                                             const std::vector<std::string>& probe_arguments);

[[nodiscard]] std::vector<std::string> split_lines(const std::string& text);

[[nodiscard]] int count(const std::string& text, const std::string& part);

}  // namespace unisono::launch_test
