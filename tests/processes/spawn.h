#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::test {

/// Variables to add to the test's own environment. Variables of jobs (RANK, UNISONO_*, ...) are
/// removed from that environment first.
using Variables = std::map<std::string, std::string>;

/// Output and exit code of a process.
struct ProcessResult {
  int exit_code =
      -1;  ///< 128 + signal after a signal; -1 if the process was killed at the deadline.
  std::string out;
  std::string err;
};

/// Processes that a test starts, with their output. The destructor kills the processes that still
/// run.
///
/// If a wait does not end by the deadline, the test fails and shows the output of every process.
class Processes {
 public:
  explicit Processes(std::chrono::nanoseconds timeout = std::chrono::seconds(40))
      : deadline_(Deadline::after(timeout)) {}

  ~Processes();

  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  Processes(Processes&&) = delete;
  Processes& operator=(Processes&&) = delete;

  /// Starts `command` and returns its index. The first word is searched in PATH. The stdin of the
  /// process is a pipe that close_stdin() ends.
  std::size_t start(std::vector<std::string> command, const Variables& variables = {});

  [[nodiscard]] pid_t pid(std::size_t process) const;

  /// Returns the stdout of the process so far.
  [[nodiscard]] const std::string& output(std::size_t process) const;

  void close_stdin(std::size_t process);

  void send_signal(std::size_t process, int signal) const;

  /// Reads until `text` is in the process's output (stdout or stderr). Fails the test and returns
  /// false at the deadline, or if the process has ended without `text`.
  bool wait_for_output(std::size_t process, const std::string& text);

  /// Waits until all processes have ended, at most `timeout`. Then kills the remaining processes,
  /// which fails the test.
  std::vector<ProcessResult> finish(std::chrono::nanoseconds timeout = std::chrono::hours(1));

  /// Returns the output of each process so far, for messages.
  [[nodiscard]] std::string describe() const;

 private:
  struct Process {
    pid_t pid = -1;
    bool has_ended = false;
    Fd in;
    Fd out;
    Fd err;
    ProcessResult result;
  };

  // Reads output until `is_done` returns true. Returns false at the deadline or when no more output
  // can come.
  bool read_until(Deadline deadline, const std::function<bool()>& is_done);
  static void reap(Process& process, Deadline deadline);

  std::vector<std::unique_ptr<Process>> processes_;
  Deadline deadline_;
};

/// A TCP port of 127.0.0.1 that a program started later can listen on. Until then the port is bound
/// without a listener, so that no other program gets the port.
class ReservedPort {
 public:
  ReservedPort();

  [[nodiscard]] std::uint16_t number() const { return number_; }

  [[nodiscard]] std::string text() const { return std::to_string(number_); }

  /// From here no other program can listen on the port.
  void listen() const;

 private:
  Fd socket_;
  std::uint16_t number_ = 0;
};

}  // namespace unisono::test
