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
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/diagnostics_store.h"
#include "unisono/comm/failure_log.h"
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/only_caller.h"
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/refused_call.h"
#include "unisono/comm/status_client.h"
#include "unisono/comm/stored_call_history.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/group_health.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {
class NativeEngine;
struct WaitingReceive;
}  // namespace unisono::engine

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

/// The ranks of the job with which a rank has had connections in a group.
struct MetRanks {
  std::set<int> by_operations = {};
  std::set<int> by_messages = {};
};

/// "group 1.2 (ranks 1, 3)", "the group of all ranks".
[[nodiscard]] std::string describe_group(const GroupSetup& setup, const GroupNumbers& numbers);

/// A rank's part in one group: who is in it, how they are, and the engine by which they reach each
/// other. Does not move: its parts know each other.
///
/// fail() and leave() are for the thread that drives the group; explain() and what the watcher
/// tells may come from any.
class Links final : public engine::GroupHealth {
 public:
  /// The job outlives it.
  Links(Job& job, GroupSetup setup);

  ~Links() override;

  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  Links(Links&&) = delete;
  Links& operator=(Links&&) = delete;

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

  [[nodiscard]] std::vector<RankTraffic> traffic() const;

  /// What carries out the operations, and passes messages.
  [[nodiscard]] engine::Engine& engine() { return engine_; }

  /// `tell` is called, by any thread and without a lock, when messages have set the group's
  /// failure: it makes it known to the other ranks.
  void on_failed_messages(std::function<void()> tell);

  /// Takes no more messages; whether those in flight have ended by the deadline.
  [[nodiscard]] bool drain_messages(Deadline deadline);

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

  /// Ends the group with its first error, and tells the other ranks, once.
  void fail(const Error& error) noexcept;

  /// Ends the group with an error of this rank's; who drives tells the others. Takes no memory. Any
  /// thread.
  void give_up(const Error& error) noexcept;

  /// Tells the other nodes' ranks of the error, and returns it with what those say who failed too.
  [[nodiscard]] Error explain(const Error& error) noexcept override;

  /// For a rank that waits: fails if another rank has written why it gave up. Asks the store,
  /// twice a second at most however many waits call it. Any thread.
  void listen() noexcept override UNISONO_EXCLUDES(listening_mutex_);

  /// Whether the group has failed, also where only the store knows that yet. Any thread.
  [[nodiscard]] bool has_heard_reason() noexcept;

  /// Tells the other ranks that this one leaves, and hears nothing more.
  void leave() noexcept;

  // links_cycle.cpp; any thread.
  /// This rank's wait with this id, or in an operation before it; nothing where it is in none, or
  /// has just begun. Of a receive from any rank looks who of other nodes still listens.
  [[nodiscard]] std::optional<RankWait> find_wait(const WaitId& id) const;

  /// The wait in this group that `thread` is in.
  [[nodiscard]] std::optional<RankWait> find_wait_of(std::uint64_t thread) const;

  /// In which wait, of any group, this rank is stuck, so that it can't do its part for `waiter`, a
  /// wait in this group. Nothing where it may: where a thread that waits for nothing may call what
  /// is missing, or something is on its way.
  [[nodiscard]] std::optional<RankWait> find_stuck_wait(const RankWait& waiter) const;

  /// From kVerdictPurpose on, this is why the group fails, whatever the failure; with
  /// kVerdictEndPurpose it does.
  void hear_verdict(std::string_view purpose, const Error& verdict);

  // From the watcher (links_watcher.cpp); ranks are the job's, and may be no members.
  void note_departure(int job_rank);
  void note_abort(int job_rank, const Error& reason);
  void note_death(int job_rank);
  /// The message is the rank's name and `what` it did.
  void note_failure(int job_rank, ErrorCode code, const std::string& what);
  /// This rank can't keep the visitor's connection: which ends the group, if it was to stay.
  void note_shortage(const net::HelloInfo& peer, const Error& shortage);
  void deliver(const net::HelloInfo& peer, Fd socket);
  /// Hears what ranks of other nodes say to one that waits for none of their messages. Now and
  /// then.
  void listen_for_messages() noexcept;

 private:
  // GroupHealth: what the engine asks and tells.
  [[nodiscard]] bool is_news(const Error& failure) override;
  [[nodiscard]] transport::RankProgress progress_of(int rank) const override;
  void ask(int rank) noexcept override;
  [[nodiscard]] std::map<int, std::string> hear(std::span<const int> ranks) override;
  void note_late(std::uint64_t sequence, std::span<const int> late_ranks) override
      UNISONO_EXCLUDES(late_mutex_);
  void look_for_cycle(const WaitId& wait) override;
  void show_wait(const WaitId& id, const engine::ShownWait& wait) const override;
  void hide_wait(const WaitId& id) const noexcept override;
  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since(
      const WaitId& message) const override;

  // Makes waits look again. Any thread.
  void wake() const;
  void publish(const Error& error, bool will_read) noexcept;

  // What another rank said of why it gave up.
  void note_reason(int rank, const Error& reason);
  void note_rank_progress(int rank, const transport::RankProgress& theirs);
  void pass_on(int job_rank, const Error& reason);

  // Of an error that other ranks know more of: what they say, unless that is the same.
  [[nodiscard]] Error known_cause_of(const Error& error) const;

  // Ends all connections, and returns the job's ranks with which there was one.
  [[nodiscard]] MetRanks close_transports();

  // The operation that is under way, once it has waited for a moment.
  struct OperationWait {
    RankWait wait;
    std::uint64_t thread;  // That executes it.
  };

  // links_cycle.cpp
  [[nodiscard]] int job_rank_of(int rank) const;
  [[nodiscard]] std::optional<OperationWait> find_operation_wait() const;
  [[nodiscard]] std::optional<RankWait> wait_of(
      const std::optional<engine::WaitingReceive>& receive) const;
  [[nodiscard]] std::optional<Error> find_verdict() const;

  // links_watcher.cpp
  void answer_wait(int fd) const;
  // Rank in the group, or -1.
  [[nodiscard]] int rank_of(int job_rank) const;

  // What this rank does in this group: "is in barrier #7 of group 0.2 (ranks 0, 1)"; "" for
  // nothing.
  [[nodiscard]] std::string describe_activity() const;

  // The same of its other groups, as far as a note has room; what it gave up in comes last.
  [[nodiscard]] std::string describe_elsewhere();

  Job& job_;
  GroupSetup setup_;
  collective::Topology topology_;
  StatusClient status_client_;
  engine::RankStatus ranks_;
  transport::Failure failure_;
  DiagnosticsStore diagnostics_store_;
  FailureLog failures_;
  StoredCallHistory call_history_;
  std::unique_ptr<engine::NativeEngine> native_;
  std::unique_ptr<engine::Engine> own_engine_;  // Of a backend of the program's own, or null.
  engine::Engine& engine_;                      // One of the two.
  // Relaxed: they order nothing else.
  std::atomic<std::uint64_t> n_calls_ = 0;
  std::atomic<bool> have_all_started_ = false;
  OnlyCaller callers_;

  // For which of the job's ranks an operation has waited when it was last looked at.
  struct Late {
    std::uint64_t sequence = 0;
    std::vector<LateRank> ranks;
    std::uint64_t thread = 0;
  };

  mutable Mutex late_mutex_;
  Late late_ UNISONO_GUARDED_BY(late_mutex_);
  std::optional<Error> verdict_ UNISONO_GUARDED_BY(late_mutex_);
  std::atomic<bool> has_published_ = false;
  std::atomic<bool> is_in_store_ = false;  // The reason, once it was published.
  bool has_told_ = false;
  Mutex listening_mutex_;
  Deadline next_listening_ UNISONO_GUARDED_BY(listening_mutex_) =
      Deadline::after(std::chrono::seconds(0));
};

}  // namespace unisono::comm
