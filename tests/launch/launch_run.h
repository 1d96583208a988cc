#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::launch_test {

/// How a `unisono run` ended.
struct RunResult {
  int exit_code = -1;  ///< 128 + signal where one ended the launcher itself.
  std::string out;
  std::string err;
};

struct RunSetup {
  std::vector<std::string> arguments = {};    ///< Those of the program.
  std::vector<std::string> environment = {};  ///< "NAME=value", added to ours; "NAME" removes it.
  int stdin_fd = -1;                          ///< -1: /dev/null.
  int stdout_fd = -1;                         ///< -1: a pipe that is collected.
  int stderr_fd = -1;
  bool close_stdout = false;
  /// Begins a session, and so a process group, of its own; a terminal's name: one whose stdin and
  /// controlling terminal that is.
  bool own_session = false;
  std::string terminal = {};
  std::string program = UNISONO_PROGRAM;
};

/// A running `unisono` with all its descendants, which can be found by a mark in their environment.
class LaunchRun {
 public:
  explicit LaunchRun(const RunSetup& setup);

  /// Kills what is left, so that a failed test leaves nothing behind.
  ~LaunchRun();

  LaunchRun(const LaunchRun&) = delete;
  LaunchRun& operator=(const LaunchRun&) = delete;
  LaunchRun(LaunchRun&&) = delete;
  LaunchRun& operator=(LaunchRun&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Reads output until `text` was seen `n_times` in stdout. Fails the test at the deadline.
  void wait_for_output(const std::string& text, int n_times = 1);

  /// What was seen of stdout.
  [[nodiscard]] const std::string& output() const { return result_.out; }

  /// As wait_for_output(), for stderr.
  void wait_for_error(const std::string& text);

  /// Waits for the launcher's end and returns everything it wrote.
  RunResult finish();

  /// Processes (no zombies) that carry the mark.
  [[nodiscard]] std::vector<pid_t> marked() const;

  /// Waits until no process carries the mark; returns what is left at the deadline.
  [[nodiscard]] std::vector<pid_t> wait_until_all_gone() const;

  /// The process ids of the guardians, one of each launcher with ranks.
  [[nodiscard]] std::vector<pid_t> guardians() const;

  /// That of the only one. Throws std::runtime_error where there is none, or another one.
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

/// Runs to the end and checks that nothing is left behind.
[[nodiscard]] RunResult run_to_end(const RunSetup& setup);

/// "run", `options`, the probe program, `probe_arguments`.
[[nodiscard]] std::vector<std::string> probe(std::vector<std::string> options,
                                             const std::vector<std::string>& probe_arguments);

[[nodiscard]] std::vector<std::string> split_lines(const std::string& text);

[[nodiscard]] int count(const std::string& text, const std::string& part);

}  // namespace unisono::launch_test
