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

/// Added to the test's own environment, from which what belongs to jobs (RANK, UNISONO_*, ...) is
/// removed first.
using Variables = std::map<std::string, std::string>;

/// What a process wrote, and how it ended.
struct ProcessResult {
  int exit_code =
      -1;  ///< 128 + signal where one ended it; -1: it had to be killed at the deadline.
  std::string out;
  std::string err;
};

/// Processes that a test starts, with their output. The destructor kills those that still run.
///
/// When a wait does not end by the deadline the test fails, and every process's output is shown.
class Processes {
 public:
  explicit Processes(std::chrono::nanoseconds timeout = std::chrono::seconds(40))
      : deadline_(Deadline::after(timeout)) {}

  ~Processes();

  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  Processes(Processes&&) = delete;
  Processes& operator=(Processes&&) = delete;

  /// Starts `command` (its first word is looked for in PATH) and returns its index. Its stdin is a
  /// pipe that close_stdin() ends.
  std::size_t start(std::vector<std::string> command, const Variables& variables = {});

  [[nodiscard]] pid_t pid(std::size_t process) const;

  /// What it has written to stdout so far.
  [[nodiscard]] const std::string& output(std::size_t process) const;

  void close_stdin(std::size_t process);

  void send_signal(std::size_t process, int signal) const;

  /// Reads until `text` is in the process's output (stdout or stderr). False at the deadline, and
  /// when the process has ended without it: then the test has failed.
  bool wait_for_output(std::size_t process, const std::string& text);

  /// Waits until all have ended, at most `timeout`. Kills what is left then, which fails the test.
  std::vector<ProcessResult> finish(std::chrono::nanoseconds timeout = std::chrono::hours(1));

  /// For messages: what each of them has written so far.
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

  // Takes up output until `is_done`; false at the deadline or when nothing can come any more.
  bool read_until(Deadline deadline, const std::function<bool()>& is_done);
  static void reap(Process& process, Deadline deadline);

  std::vector<std::unique_ptr<Process>> processes_;
  Deadline deadline_;
};

/// A TCP port of 127.0.0.1 that a program started later can listen on: until then it is bound, but
/// not listened on, so that nobody else gets it.
class ReservedPort {
 public:
  ReservedPort();

  [[nodiscard]] std::uint16_t number() const { return number_; }

  [[nodiscard]] std::string text() const { return std::to_string(number_); }

  /// Now nobody else can listen there.
  void listen() const;

 private:
  Fd socket_;
  std::uint16_t number_ = 0;
};

}  // namespace unisono::test
