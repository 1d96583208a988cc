#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/binding/bind_ranks.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/grace_period.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/output/outputs.h"
#include "unisono/launch/process/children.h"
#include "unisono/launch/process/guardian_link.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/launch/stall_watch.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Settings of a WorkerGroup.
struct WorkerGroupOptions {
  JobLayout job;
  std::chrono::milliseconds grace;  ///< Time from asking the ranks to end to killing them.
  bool verbose;
  bool reports_bindings;  ///< Reports the cores of the ranks once all ranks run.
};

/// A generation of a node's ranks. Starts and watches the ranks, and ends all when a rank fails.
///
/// The Agent owns the object until the generation ends. All functions run on the loop's thread.
/// After is_over() no process of the generation runs, unless the guardian has ended: the owner then
/// reaps the ranks. The constructor throws Error(kSystem); later failures become cause().
class WorkerGroup {
 public:
  /// Does not start any rank yet. All arguments except `options` must outlive the object.
  WorkerGroup(net::EventLoop& loop,
              GuardianLink& guardian,
              Outputs& outputs,
              const Program& program,
              const WorkerGroupOptions& options);

  /// Starts the ranks, in sequence.
  void start();

  /// Handles a message of the guardian.
  void handle(const Message& message);

  /// Called when the guardian has ended, and the ranks with it.
  void on_guardian_gone();

  /// Records the status of a rank that this process has reaped after the guardian ended.
  void on_reaped(pid_t pid, int status);

  /// Called when all processes that an ended guardian has left are reaped.
  void on_all_reaped();

  /// Ends the ranks because the launcher received `signal`. Further signals have no effect, except
  /// a second Ctrl-C, which kills the ranks.
  void stop(const CaughtSignal& signal);

  /// Sends the ranks a signal that is not meant to end them.
  void pass_on(int signal_number);

  /// Ends the ranks because of `cause`, unless they are already ending for another cause.
  void fail(Cause cause);

  /// Ends the ranks because other ranks have waited for `rank` during `waited`; `waits` describes
  /// the waits in lines. Has no effect if `rank` does not run on this node.
  void give_up(int rank, std::chrono::nanoseconds waited, const std::string& waits);

  /// Returns the long waits of the ranks; empty without JobLayout::stall_timeout.
  [[nodiscard]] std::span<const RankWait> waits() const;

  /// Returns the indices of the workers with waits that have changed since the last call.
  [[nodiscard]] std::vector<std::size_t> take_changed_waits();

  [[nodiscard]] std::span<const RankWait> waits_of(std::size_t worker) const {
    return stalls_ ? stalls_->waits_of(worker) : std::span<const RankWait>();
  }

  /// Returns the time at which on_deadline() is due.
  [[nodiscard]] Deadline deadline() const;

  /// Reads the wait files, shows notices, and begins the next phase of ending the ranks, as far as
  /// these are due.
  void on_deadline();

  [[nodiscard]] bool is_over() const { return phase_ == Phase::kOver; }

  /// Returns true if the guardian has reported that no process of this generation is left.
  [[nodiscard]] bool left_nothing() const { return left_nothing_; }

  [[nodiscard]] const std::optional<Cause>& cause() const { return cause_; }

  [[nodiscard]] std::span<const WorkerRecord> workers() const { return workers_; }

  /// Returns the likely origin of a SIGKILL that ended a worker.
  [[nodiscard]] std::string describe_kill() const;

  /// Returns the time since start().
  [[nodiscard]] std::chrono::nanoseconds lifetime() const { return Clock::now() - start_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Progress of ending the ranks. Each phase has a deadline after which the next phase begins.
  enum class Phase { kRunning, kInterrupted, kTerminating, kKilling, kOver };

  void spawn_next();

  void on_message(const Started& message);
  void on_message(const SpawnFailed& message);
  void on_message(const Exited& message);
  void on_message(const Idle& message);
  void on_message(const Stuck& message);
  void on_unreported_end();

  [[nodiscard]] std::string describe_process(std::size_t index) const;
  void record_end(std::size_t index, int status);
  void mark_running_as_ended_by_us();
  void ask_to_end(Phase phase, int signal_number);
  void terminate();
  void await_leftovers();
  void kill();
  [[nodiscard]] std::vector<int> running_ranks() const;
  void give_guardian_up();
  void order(const Message& message);
  [[nodiscard]] bool all_ended() const;

  GuardianLink& guardian_;
  Outputs& outputs_;
  const Program& program_;
  WorkerGroupOptions options_;
  GracePeriod grace_;
  EndWatch ends_;
  Fd null_;
  std::vector<ErrorFile> errors_;
  std::optional<StallWatch> stalls_;
  MemoryKills kills_before_;
  std::vector<WorkerRecord> workers_;
  Clock::time_point start_;
  std::vector<Clock::time_point> started_;
  RankBindings bindings_;
  std::size_t n_ordered_ = 0;
  bool awaits_spawn_ = false;
  Phase phase_ = Phase::kRunning;
  bool left_nothing_ = false;
  Deadline phase_deadline_ = Deadline::never();
  Deadline kill_deadline_ = Deadline::never();
  std::optional<Cause> cause_;
};

}  // namespace unisono::launch
