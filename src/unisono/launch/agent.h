#pragma once

#include <memory>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/hosts/uplink.h"
#include "unisono/launch/output/outputs.h"
#include "unisono/launch/process/guardian_link.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/launch/run.h"
#include "unisono/launch/worker_group.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Runs the ranks of this node, generation after generation, from the first spawn to the report
/// about the job's end.
///
/// The launcher creates an Agent for each job on this node. All functions and callbacks run on the
/// thread of the loop. A failure of a rank, of the guardian or of the output ends the generation
/// and becomes part of the Outcome. The constructor and run() throw Error(kSystem) if the agent
/// itself cannot work, for example without a log folder or a new guardian.
class Agent {
 public:
  /// `loop`, `guardian`, `generations` and `uplink` must outlive the object. If `uplink` is not
  /// null, output, orders and the report use that connection.
  Agent(net::EventLoop& loop,
        const RunOptions& options,
        const Program& program,
        GuardianLink& guardian,
        Generations& generations,
        hosts::Uplink* uplink);

  /// Runs the job to the end, shows the report, and returns the exit code of `unisono run`.
  int run();

 private:
  [[nodiscard]] GroupEnd run_generation(const JobLayout& job);
  [[nodiscard]] bool run_once(Deadline until);
  [[nodiscard]] GroupEnd group_end(const JobLayout& job) const;

  void watch_signals();
  void watch_guardian();
  void on_signal(const CaughtSignal& signal);
  void on_stop_signal(const CaughtSignal& signal);
  void on_channel();
  [[nodiscard]] WorkerOutput::OnError output_error();
  void on_output_error(const std::string& what, int error_number);
  void fail(Cause cause);

  void end_guardian();
  void flush_outputs();
  [[nodiscard]] Outcome outcome() const;

  RunOptions options_;
  Program program_;
  GuardianLink& guardian_;
  Generations& generations_;
  hosts::Uplink* uplink_;
  SignalFd signals_;
  net::EventLoop& loop_;
  Outputs outputs_;
  Waiting waiting_;
  std::unique_ptr<WorkerGroup> group_;  // Set while the ranks of a generation run.
  std::optional<GroupEnd> last_;        // End of the last generation.
  std::optional<Cause> cause_;          // Reason for which this node ended while no ranks ran.
  bool is_ending_ = false;              // This node ends for a reason other than a failed rank.
  bool has_guardian_ = false;
  bool has_left_processes_ = false;  // Processes that could not be ended.
  bool is_flushing_ = false;
  Deadline flushed_by_ = Deadline::never();
};

}  // namespace unisono::launch
