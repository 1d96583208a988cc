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
#include "unisono/launch/binding/rank_bindings.h"
#include "unisono/launch/cause.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/error_file.h"
#include "unisono/launch/grace_period.h"
#include "unisono/launch/late_rank.h"
#include "unisono/launch/memory_kills.h"
#include "unisono/launch/output/outputs.h"
#include "unisono/launch/process/end_watch.h"
#include "unisono/launch/process/guardian_link.h"
#include "unisono/launch/process/protocol.h"
#include "unisono/launch/process/signals.h"
#include "unisono/launch/program.h"
#include "unisono/launch/report.h"
#include "unisono/launch/stall_watch.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

struct WorkerGroupOptions {
  JobLayout job;
  std::chrono::milliseconds grace;  ///< From asking the ranks to end to killing them.
  bool verbose;
  bool reports_bindings;  ///< Says where the ranks run, once all do.
};

/// One generation of a node's ranks: starts them, watches them, and ends all when one fails.
///
/// Belongs to the loop's thread. Nothing of it runs any more once it is over, unless the guardian
/// is gone: then its ranks are the owner's to reap.
class WorkerGroup {
 public:
  /// Starts nothing yet. All but `options` must outlive the object.
  WorkerGroup(net::EventLoop& loop,
              GuardianLink& guardian,
              Outputs& outputs,
              const Program& program,
              const WorkerGroupOptions& options);

  void start();

  /// Takes what the guardian says.
  void handle(const Message& message);

  /// The guardian has ended, and the ranks with it.
  void on_guardian_gone();

  /// This process has reaped a rank, in the place of a guardian that is gone.
  void on_reaped(pid_t pid, int status);

  /// All is reaped that a guardian that is gone has left.
  void on_all_reaped();

  /// Ends the ranks because the launcher got this signal. Others that follow change nothing, but
  /// for a second Ctrl-C, which kills them.
  void stop(const CaughtSignal& signal);

  /// Sends the ranks a signal that is not to end them.
  void pass_on(int signal_number);

  /// Ends the ranks because of this, unless they end because of something else already.
  void fail(Cause cause);

  /// Ends the ranks because others have waited `waited` for this one, as `waits` says in lines;
  /// nothing where it is none of this node's that runs.
  void give_up(int rank, std::chrono::nanoseconds waited, const std::string& waits);

  /// In which long waits its ranks are; none without JobLayout::stall_timeout.
  [[nodiscard]] std::span<const RankWait> waits() const;

  /// Whose waits have changed since the last call: their places among the workers.
  [[nodiscard]] std::vector<std::size_t> take_changed_waits();

  [[nodiscard]] std::span<const RankWait> waits_of(std::size_t worker) const {
    return stalls_ ? stalls_->waits_of(worker) : std::span<const RankWait>();
  }

  /// When on_deadline() is due.
  [[nodiscard]] Deadline deadline() const;

  void on_deadline();

  [[nodiscard]] bool is_over() const { return phase_ == Phase::kOver; }

  /// Whether the guardian has said that no process of this generation is left.
  [[nodiscard]] bool left_nothing() const { return left_nothing_; }

  [[nodiscard]] const std::optional<Cause>& cause() const { return cause_; }

  [[nodiscard]] std::span<const WorkerRecord> workers() const { return workers_; }

  /// Where a SIGKILL has come from that ended one of them.
  [[nodiscard]] std::string describe_kill() const;

  /// Since start().
  [[nodiscard]] std::chrono::nanoseconds lifetime() const { return Clock::now() - start_; }

 private:
  using Clock = std::chrono::steady_clock;

  // How far ending the ranks has come. Each phase has the next one's deadline.
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
