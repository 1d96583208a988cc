#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/group_setup.h"
#include "unisono/comm/group_waits.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/net/hello.h"
#include "unisono/peers/control_link.h"
#include "unisono/peers/diagnostics_store.h"
#include "unisono/peers/group_registry.h"
#include "unisono/peers/status_client.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/traffic.h"

namespace unisono::comm {

class Job;

/// State of a process group on this rank: members, failure, calls and waits, and the engine that
/// executes operations. Connects the engine to the monitor of other ranks, and receives the events
/// of both.
///
/// Shared by the group's queue and the registry of the monitor, until leave(). Not movable, because
/// its parts refer to each other. The thread that drives the group calls fail(), is_settled_by()
/// and leave(); any thread may call the other functions. Errors of other ranks become failure().
class GroupState final : public engine::EngineEvents,
                         public peers::NodeProgress,
                         public peers::MonitoredGroup {
 public:
  /// The job must outlive the object.
  GroupState(Job& job, GroupSetup setup);

  ~GroupState() override;

  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  GroupState(GroupState&&) = delete;
  GroupState& operator=(GroupState&&) = delete;

  [[nodiscard]] Job& job() { return job_; }

  /// Number of the group, equal on all its ranks and unique in the job.
  [[nodiscard]] std::uint32_t number() const { return setup_.number; }

  /// The group's members, by rank in the group.
  [[nodiscard]] const transport::RankTable& roster() const { return setup_.roster; }

  [[nodiscard]] const collective::Topology& topology() const { return topology_; }

  /// Returns the prefix of this rank's messages: "[rank 5/8, 1/2 in group 4.3]".
  [[nodiscard]] const std::string& prefix() const { return ranks_.prefix(); }

  /// The job's numbers of the group's ranks, for messages.
  [[nodiscard]] transport::JobRanks job_ranks() const { return ranks_.job_ranks(); }

  /// Default timeout of the group's operations.
  [[nodiscard]] std::chrono::milliseconds timeout() const { return setup_.timeout; }

  [[nodiscard]] const transport::Failure& failure() const { return failure_; }

  /// Executes operations and passes messages.
  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  /// Traffic of the connections for operations, by rank.
  [[nodiscard]] std::vector<RankTraffic> traffic() const { return native_->traffic(); }

  // Calls of this rank.

  /// Records that this thread makes a call of the group.
  void note_caller() { waits_.note_caller(); }

  /// Records that this thread calls the operation with this number.
  void note_call(std::uint64_t sequence) { waits_.note_call(sequence); }

  /// Records that an operation of this group has succeeded.
  void note_done(transport::OperationKind kind) {
    if (transport::needs_all(kind)) {
      have_all_started_.store(true, std::memory_order_relaxed);
    }
  }

  /// Records that a call of this rank has thrown the failure.
  void note_delivered() { failure_.note_delivered(); }

  /// Returns the error of a call with invalid arguments. Until the next collective operation,
  /// reports of ranks that wait for this rank include the call.
  [[nodiscard]] RefusedCall refuse(const std::string& call, const std::string& problem);

  /// Adds a remedy to a mismatch if several threads of this rank make calls.
  [[nodiscard]] Error with_callers(const Error& error) const;

  /// Returns the group's ranks for which operation `sequence` waited at its last check, in
  /// ascending order.
  [[nodiscard]] std::vector<int> late_ranks(std::uint64_t sequence) const {
    return waits_.late_ranks(sequence);
  }

  // Failure and end.

  /// Sets the callback for a failure that messages have set. Any thread may call `report`, without
  /// a lock; it calls fail() on the thread that drives the group.
  void on_failed_messages(std::function<void()> report) {
    native_->on_failed_messages(std::move(report));
  }

  /// Ends the group with its first error, and reports it to the other ranks, once.
  void fail(const Error& error) noexcept;

  /// Refuses new messages. Returns whether the messages in flight have ended by the deadline.
  [[nodiscard]] bool drain_messages(Deadline deadline) { return native_->drain_messages(deadline); }

  /// Calls GroupDeparture::is_settled_by(). All operations and messages of this rank must have
  /// ended.
  [[nodiscard]] bool is_settled_by(Deadline deadline) { return departure_.is_settled_by(deadline); }

  /// Announces to the other ranks that this rank leaves, and ends this rank's part in the group.
  /// Then throws the group's failure if that is a mismatch that no call of this rank has thrown.
  void leave();

  /// Logs a failure that no call of this rank has thrown: as a warning if no other group of this
  /// rank has failed for the same cause, otherwise as a debug message.
  void report_undelivered(const Error& failure) const noexcept;

  // EngineEvents: the engine's reports and queries. check_peers() reads the store, at most twice a
  // second for all waits together.

  void check_peers() noexcept override UNISONO_EXCLUDES(checking_mutex_);
  [[nodiscard]] Error explain(const Error& error) noexcept override;

  void warn(int rank, const Error& reason) const noexcept override {
    status_client_.warn(rank, reason);
  }

  [[nodiscard]] bool has_left_operations(int rank) const override {
    return ranks_.has_departed(rank);
  }

  [[nodiscard]] bool has_left_messages(int rank) const override {
    return ranks_.has_departed_from_messages(rank);
  }

  [[nodiscard]] std::string describe_departed(int rank) const override {
    return ranks_.describe_departed(rank);
  }

  [[nodiscard]] std::string describe_late(std::span<const int> ranks) const override {
    return ranks_.describe_late(ranks);
  }

  [[nodiscard]] std::string describe_overdue(std::span<const int> ranks) override {
    return status_client_.describe_overdue(ranks);
  }

  void note_late(std::uint64_t sequence, std::span<const int> late_ranks) override {
    waits_.note_late(sequence, late_ranks);
  }

  void report_stall(const std::string& operation,
                    std::chrono::milliseconds waited,
                    const std::string& late,
                    std::span<const int> ranks) override {
    status_client_.report_stall(operation, waited, late, ranks);
  }

  void search_deadlock(const transport::WaitId& wait) override;

  void show_wait(const transport::WaitId& id, LongWait wait) const override {
    waits_.show(id, std::move(wait));
  }

  void hide_wait(const transport::WaitId& id) const noexcept override { waits_.hide(id); }

  [[nodiscard]] std::optional<Deadline::Clock::time_point> blocked_since(
      const transport::WaitId& work) const override;

  void publish_calls(std::span<const transport::CallRecord> calls) noexcept override {
    diagnostics_store_.tell_calls(calls);
  }

  [[nodiscard]] std::vector<transport::CallRecord> calls_of(int rank) noexcept override {
    return diagnostics_store_.ask_calls(rank);
  }

  // NodeProgress

  [[nodiscard]] transport::RankProgress progress_of(int rank) const override;
  [[nodiscard]] bool has_left(int rank) const override;

  // MonitoredGroup: the monitor's reports and queries.

  void note_abort(int job_rank, const Error& reason) override;
  void note_end(int job_rank, peers::ControlLink::End how) override;
  void deliver(const net::HelloInfo& peer,
               Fd socket,
               const std::optional<Error>& shortage) override;
  void listen_for_messages() noexcept override;

  /// The thread that drives the group reports the failure to the other ranks.
  void give_up(const Error& error) noexcept override { failure_.set(error); }

  [[nodiscard]] std::optional<Error> find_failure() const override;
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const override;
  [[nodiscard]] std::string describe_activity() const override;

  [[nodiscard]] std::optional<transport::Stall> find_wait(
      const transport::WaitId& id) const override {
    return waits_.find(id);
  }

  [[nodiscard]] std::optional<transport::Stall> find_wait_of(std::uint64_t thread) const override {
    return waits_.find_of(thread);
  }

  [[nodiscard]] std::optional<transport::Stall> find_stuck_wait(
      const transport::Stall& waiter) const override {
    return waits_.find_stuck(waiter);
  }

  [[nodiscard]] bool has_reported_failure() noexcept override;
  void set_deadlock(const Error& verdict) override;
  void end_with(const Error& verdict) override;

 private:
  // Makes waits check the failure. Any thread.
  void wake() const { native_->wake(); }

  [[nodiscard]] peers::GroupContacts contacts() const;
  [[nodiscard]] Error with_prefix(const Error& error) const;
  [[nodiscard]] Error known_cause_of(const Error& error) const;
  void publish(const Error& error, bool will_read) noexcept;
  void note_reason(int rank, const Error& reason);
  void note_rank_progress(int rank, const transport::RankProgress& theirs);
  void note_failure(int rank, ErrorCode code, const std::string& what);
  void end_part(bool has_failed) noexcept;

  Job& job_;
  GroupSetup setup_;
  collective::Topology topology_;
  peers::RankStatus ranks_;
  peers::StatusClient status_client_;
  transport::Failure failure_;
  base::Logger logger_;
  GroupWaits waits_;
  peers::DiagnosticsStore diagnostics_store_;
  std::shared_ptr<engine::GroupEngine> native_;
  std::shared_ptr<engine::Engine> engine_;  // `native_`, or an engine that uses it.
  GroupDeparture departure_;

  // Relaxed, because no other data depends on them.
  std::atomic<bool> have_all_started_ = false;
  std::atomic<bool> has_published_ = false;
  std::atomic<bool> is_in_store_ = false;  // The published reason of the failure is in the store.
  bool has_reported_ = false;              // To the other ranks. Used by the driving thread only.
  Mutex checking_mutex_;
  Deadline next_check_ UNISONO_GUARDED_BY(checking_mutex_) =
      Deadline::after(std::chrono::seconds(0));
};

}  // namespace unisono::comm
