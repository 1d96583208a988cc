#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/only_caller.h"
#include "unisono/comm/refused_call.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_engine.h"
#include "unisono/health/control_link.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/group_health.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/rank_status.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/status_client.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/traffic.h"

namespace unisono::comm {

class Job;

/// What makes a group of a job's ranks.
struct GroupSetup {
  std::uint32_t number = 0;   ///< The same on all its ranks; 0 is the world.
  rendezvous::Roster roster;  ///< Its members by rank in the group; they keep their job's ranks.
  std::chrono::milliseconds timeout;
  /// Where each rank of this node has the group's part of its arena, in order of rank in the group.
  std::vector<std::int64_t> offsets;
};

/// "group 1.2 (ranks 1, 3)", "the group of all ranks".
[[nodiscard]] std::string describe_group(const GroupSetup& setup, const GroupNumbers& numbers);

/// A rank's part in one group: who is in it, how they are, and the engine by which they reach each
/// other. Does not move: its parts know each other.
///
/// fail() and leave() are for the thread that drives the group; explain() and what the watcher
/// tells may come from any.
class Membership final : public health::GroupHealth, public health::MonitoredGroup {
 public:
  /// The job outlives it.
  Membership(Job& job, GroupSetup setup);

  ~Membership() override;

  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  Membership(Membership&&) = delete;
  Membership& operator=(Membership&&) = delete;

  [[nodiscard]] Job& job() { return job_; }

  [[nodiscard]] std::uint32_t number() const { return setup_.number; }

  [[nodiscard]] const rendezvous::Roster& roster() const { return setup_.roster; }

  [[nodiscard]] const collective::Topology& topology() const { return topology_; }

  /// What messages of this rank begin with.
  [[nodiscard]] const std::string& prefix() const { return ranks_.prefix(); }

  /// What its ranks are called in the job, where that differs.
  [[nodiscard]] transport::JobRanks job_ranks() const { return ranks_.job_ranks(); }

  [[nodiscard]] std::chrono::milliseconds timeout() const { return setup_.timeout; }

  [[nodiscard]] const transport::Failure& failure() const { return failure_; }

  /// A call or operation of this rank ends with the failure.
  void note_delivered() { failure_.note_delivered(); }

  /// What carries out the operations, and passes messages.
  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  [[nodiscard]] std::vector<RankTraffic> traffic() const;

  /// `tell` is called, by any thread and without a lock, when messages have set the group's
  /// failure: it makes it known to the other ranks.
  void on_failed_messages(std::function<void()> tell);

  // membership_leaving.cpp

  /// Takes no more messages; whether those in flight have ended by the deadline.
  [[nodiscard]] bool drain_messages(Deadline deadline);

  /// After all operations and messages of this rank have ended: waits until no other rank can find
  /// a mismatch with them any more, the group fails, or some seconds have passed. Returns whether
  /// that is so by the deadline. On the thread that drives the group.
  [[nodiscard]] bool is_settled_by(Deadline deadline) UNISONO_EXCLUDES(late_mutex_);

  /// Tells the other ranks that this one leaves, and ends its part in the group. Then throws the
  /// group's failure if it is a mismatch and no call of this rank has ended with it.
  void leave();

  /// Logs what leave() has thrown, where nobody catches it.
  void report_unheard(const Error& error) const noexcept { ranks_.report_unheard(error); }

  // membership.cpp

  /// Notes the number of the last operation that was called, by this thread.
  void note_call(std::uint64_t sequence) {
    note_caller();
    n_calls_.store(sequence, std::memory_order_relaxed);
  }

  /// Notes that this thread makes a call of the group.
  void note_caller();

  /// An operation of this group has ended well.
  void note_done(transport::OperationKind kind) {
    if (transport::needs_all(kind)) {
      have_all_started_.store(true, std::memory_order_relaxed);
    }
  }

  /// The error of a call whose arguments are wrong. Until the next collective operation, whoever
  /// waits for this rank says that it refused the call. Any thread.
  [[nodiscard]] RefusedCall refuse(const std::string& call, const std::string& problem);

  /// Says of calls that differ from other ranks' where several threads make them here.
  [[nodiscard]] Error with_callers(const Error& error) const;

  /// Ends the group with its first error, and tells the other ranks, once.
  void fail(const Error& error) noexcept;

  /// The group's ranks, in order, that operation `sequence` waited for when it was last looked at.
  [[nodiscard]] std::vector<int> late_ranks(std::uint64_t sequence) const
      UNISONO_EXCLUDES(late_mutex_);

  // MonitoredGroup; who drives the group tells the others of what it gives up for.
  void give_up(const Error& error) noexcept override;

  /// Tells the other nodes' ranks of the error, and returns it with what those say who failed too.
  [[nodiscard]] Error explain(const Error& error) noexcept override;

  /// For a rank that waits: fails if another rank has written why it gave up. Asks the store,
  /// twice a second at most however many waits call it. Any thread.
  void listen() noexcept override UNISONO_EXCLUDES(listening_mutex_);

  [[nodiscard]] bool has_heard_reason() noexcept override;

  // membership_waits.cpp
  [[nodiscard]] std::optional<health::RankWait> find_wait(const health::WaitId& id) const override;
  [[nodiscard]] std::optional<health::RankWait> find_wait_of(std::uint64_t thread) const override;
  [[nodiscard]] std::optional<health::RankWait> find_stuck_wait(
      const health::RankWait& waiter) const override;
  void hear_verdict(const Error& verdict) override;
  void end_with(const Error& verdict) override;

  // membership_events.cpp
  void note_abort(int job_rank, const Error& reason) override;
  void note_end(int job_rank, health::ControlLink::End how) override;
  void deliver(const net::HelloInfo& peer,
               Fd socket,
               const std::optional<Error>& shortage) override;
  void listen_for_messages() noexcept override;
  [[nodiscard]] std::optional<Error> find_failure() const override;
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const override;
  [[nodiscard]] std::string describe_activity() const override;

 private:
  // GroupHealth: what the engine asks and tells.
  [[nodiscard]] bool is_news(const Error& failure) override;
  [[nodiscard]] transport::RankProgress progress_of(int rank) const override;
  [[nodiscard]] bool has_left(int rank) const override;
  void note_late(std::uint64_t sequence, std::span<const int> late_ranks) override
      UNISONO_EXCLUDES(late_mutex_);
  void look_for_cycle(const health::WaitId& wait) override;
  void show_wait(const health::WaitId& id, LongWait wait) const override;
  void hide_wait(const health::WaitId& id) const noexcept override;

  // Makes waits look again. Any thread.
  void wake() const;
  void publish(const Error& error, bool will_read) noexcept;

  [[nodiscard]] health::GroupContacts contacts() const;

  // What another rank said of why it gave up.
  void note_reason(int rank, const Error& reason);
  void note_rank_progress(int rank, const transport::RankProgress& theirs);

  // Of an error that other ranks know more of: what they say, unless that is the same.
  [[nodiscard]] Error known_cause_of(const Error& error) const;

  // The operation that is under way, once it has waited for a moment.
  struct OperationWait {
    health::RankWait wait;
    std::uint64_t thread;  // That executes it.
  };

  // membership_leaving.cpp
  [[nodiscard]] std::vector<int> find_doubtful() UNISONO_EXCLUDES(late_mutex_);
  [[nodiscard]] bool is_any_gone(std::vector<int> ranks);
  void end_part(bool has_failed) noexcept;

  // membership_waits.cpp
  [[nodiscard]] int job_rank_of(int rank) const;
  [[nodiscard]] std::optional<OperationWait> find_operation_wait() const;
  [[nodiscard]] std::optional<health::RankWait> wait_of(
      std::optional<health::RankWait> receive) const;
  [[nodiscard]] std::optional<Error> find_verdict() const;

  // membership_events.cpp
  void note_failure(int rank, ErrorCode code, const std::string& what);
  // Rank in the group, or -1.
  [[nodiscard]] int rank_of(int job_rank) const;

  Job& job_;
  GroupSetup setup_;
  collective::Topology topology_;
  health::RankStatus ranks_;
  health::StatusClient status_client_;
  transport::Failure failure_;
  health::DiagnosticsStore diagnostics_store_;
  std::shared_ptr<engine::GroupEngine> native_;
  std::shared_ptr<engine::Engine> engine_;  // The same, or another that may use it.
  // Relaxed: they order nothing else.
  std::atomic<std::uint64_t> n_calls_ = 0;
  std::atomic<bool> have_all_started_ = false;
  OnlyCaller callers_;

  // For which of the job's ranks an operation has waited when it was last looked at.
  struct Late {
    std::uint64_t sequence = 0;
    std::vector<health::LateRank> ranks;
    std::uint64_t thread = 0;
  };

  mutable Mutex late_mutex_;
  Late late_ UNISONO_GUARDED_BY(late_mutex_);
  std::optional<Error> verdict_ UNISONO_GUARDED_BY(late_mutex_);
  // By node: how many operations all of its ranks have finished, as one of them has answered.
  std::map<int, std::uint64_t> n_finished_on_node_ UNISONO_GUARDED_BY(late_mutex_);
  // While this rank leaves: the end of is_settled_by()'s wait, and the ranks that have left.
  std::optional<Deadline> settling_until_;
  std::set<int> gone_;
  std::atomic<bool> has_published_ = false;
  std::atomic<bool> is_in_store_ = false;  // The reason, once it was published.
  bool has_told_ = false;
  Mutex listening_mutex_;
  Deadline next_listening_ UNISONO_GUARDED_BY(listening_mutex_) =
      Deadline::after(std::chrono::seconds(0));
};

}  // namespace unisono::comm
