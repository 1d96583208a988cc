#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/guardian_link.h"
#include "unisono/launch/outputs.h"
#include "unisono/launch/program.h"
#include "unisono/launch/protocol.h"
#include "unisono/launch/report.h"
#include "unisono/launch/run.h"
#include "unisono/launch/signals.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

/// Supervises the ranks of one node, from the first spawn to the report about the end.
class Agent {
 public:
  /// Serves the ranks' store, as `store` has it; the ranks are told the port that it got.
  Agent(const RunOptions& options,
        const Program& program,
        const JobLayout& job,
        const store::TcpServerOptions& store);

  /// Returns the exit code of `unisono run`.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  // How far ending the ranks has come. Each phase has the next one's deadline.
  enum class Phase { kRunning, kInterrupted, kTerminating, kKilling, kOver };

  // Why the job ends, if not because all ranks are done.
  struct Cause {
    int exit_code;
    std::optional<std::size_t> failed_worker;
    std::string message;
  };

  void spawn_next();
  void fail(Cause cause);

  void on_signal();
  void on_stop_signal(int signal_number);
  void on_channel();
  void on_message(const Started& message);
  void on_message(const SpawnFailed& message);
  void on_message(const Exited& message);
  void on_message(const Idle& message);
  void on_message(const Stuck& message);
  void on_output_error(const std::string& what, int error_number);

  void mark_running_as_ended_by_us();
  void interrupt(int signal_number);
  void terminate();
  void kill();
  void escalate();
  void order(const Message& message);
  [[nodiscard]] bool all_ended() const;
  void finish();
  void flush_outputs();
  int report();

  RunOptions options_;
  Program program_;
  JobLayout job_;
  SignalFd signals_;
  net::EventLoop loop_;
  store::TcpStoreServer store_;
  Outputs outputs_;
  GuardianLink guardian_;
  Fd null_;
  std::vector<WorkerRecord> workers_;
  std::vector<Clock::time_point> started_;
  std::size_t n_ordered_ = 0;
  bool awaits_spawn_ = false;
  Phase phase_ = Phase::kRunning;
  Deadline phase_deadline_ = Deadline::never();
  bool is_flushing_ = false;
  bool abandon_output_ = false;
  std::optional<Cause> cause_;
};

}  // namespace unisono::launch
