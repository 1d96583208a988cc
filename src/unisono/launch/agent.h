#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/cause.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/output/outputs.h"
#include "unisono/launch/process/guardian_link.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/launch/restart_policy.h"
#include "unisono/launch/run.h"
#include "unisono/launch/worker_group.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

/// Runs a job's ranks on this node, generation after generation, from the first spawn to the report
/// about the end, and serves their store, one for each generation.
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
  void run_generation();
  bool prepare_restart();
  void pause(std::chrono::milliseconds delay);

  void on_signal();
  void on_stop_signal(int signal_number);
  void on_channel();
  void on_output_error(const std::string& what, int error_number);

  void finish();
  void flush_outputs();
  [[nodiscard]] std::optional<Cause> cause() const;
  [[nodiscard]] std::string describe_failure(std::size_t failed_worker) const;
  int report();

  RunOptions options_;
  Program program_;
  JobLayout job_;
  SignalFd signals_;
  net::EventLoop loop_;
  store::TcpServerOptions store_options_;
  std::unique_ptr<store::TcpStoreServer> store_;  // Of the present generation.
  Outputs outputs_;
  GuardianLink guardian_;
  RestartPolicy restarts_;
  std::unique_ptr<WorkerGroup> group_;  // None between generations.
  std::vector<WorkerRecord> failed_;    // Of each generation that another one followed.
  std::optional<Cause> cause_;          // What ended the job, where that was no generation's end.
  bool may_restart_ = true;
  bool is_flushing_ = false;
  bool abandon_output_ = false;
};

}  // namespace unisono::launch
