#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/wait_record.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/group_setup.h"
#include "unisono/engine/group_engine.h"
#include "unisono/peers/status_client.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"

namespace unisono::comm {

/// Determines whether a single thread makes all calls of an object. Thread-safe.
class SingleCaller {
 public:
  /// Records a call by `thread`; see this_thread_number().
  void note(std::uint64_t thread) {
    std::uint64_t known = thread_.load(std::memory_order_relaxed);
    if (known == kNone && thread_.compare_exchange_strong(known, thread)) {
      return;
    }
    if (known != thread && known != kSeveral) {
      thread_.store(kSeveral, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool has_none() const { return thread_.load(std::memory_order_relaxed) == kNone; }

  /// Returns the thread; std::nullopt if no thread has called, or several have.
  [[nodiscard]] std::optional<std::uint64_t> thread() const {
    const std::uint64_t known = thread_.load(std::memory_order_relaxed);
    return known == kNone || known == kSeveral ? std::nullopt : std::optional(known);
  }

 private:
  static constexpr std::uint64_t kNone = 0;
  static constexpr std::uint64_t kSeveral = std::numeric_limits<std::uint64_t>::max();

  // Relaxed, because no other data depends on it.
  std::atomic<std::uint64_t> thread_ = kNone;
};

class Job;

/// Calls and waits of this rank in a group: the ranks for which its operation waits, the wait of a
/// thread, and the deadlock that ends the group. Owned by GroupState. Thread-safe.
class GroupWaits {
 public:
  /// The references must outlive the object.
  GroupWaits(Job& job,
             const GroupSetup& setup,
             transport::JobRanks job_ranks,
             const transport::Failure& failure);

  /// Sets the engine. Must be called before any search for a wait.
  void set_engine(engine::GroupEngine& engine) { engine_ = &engine; }

  /// Records that this thread makes a call of the group.
  void note_caller();

  /// Records that this thread calls the operation with this number.
  void note_call(std::uint64_t sequence) {
    note_caller();
    n_calls_.store(sequence, std::memory_order_relaxed);
  }

  /// Returns the number of the last operation that was called.
  [[nodiscard]] std::uint64_t n_calls() const { return n_calls_.load(std::memory_order_relaxed); }

  /// Returns whether several threads have made calls.
  [[nodiscard]] bool has_several_callers() const {
    return !callers_.has_none() && !callers_.thread();
  }

  /// Records the ranks for which operation `sequence` waits. Called by the thread that executes the
  /// operation.
  void note_late(std::uint64_t sequence, std::span<const int> late_ranks) UNISONO_EXCLUDES(mutex_);

  /// Returns the ranks for which operation `sequence` waited at its last check, in ascending order.
  [[nodiscard]] std::vector<int> late_ranks(std::uint64_t sequence) const UNISONO_EXCLUDES(mutex_);

  /// Returns this rank's wait with this id, or in an operation before it; std::nullopt without such
  /// a wait, or if the wait has just begun.
  [[nodiscard]] std::optional<transport::Stall> find(const transport::WaitId& id) const;

  /// Returns the wait of `thread` in this group.
  [[nodiscard]] std::optional<transport::Stall> find_of(std::uint64_t thread) const;

  /// Returns the wait, in any group, that prevents this rank's part for `waiter`, a wait in this
  /// group; std::nullopt if a thread may still do that part, or if the part's data is in flight.
  [[nodiscard]] std::optional<transport::Stall> find_stuck(const transport::Stall& waiter) const;

  /// Publishes a long wait to the launcher, until hide(). `wait.late` are ranks of the group.
  void show(const transport::WaitId& id, LongWait wait) const;
  /// Withdraws a wait that show() has published.
  void hide(const transport::WaitId& id) const noexcept;

  /// Sets the deadlock that this rank is part of. From then on it is the reason of the group's
  /// failure.
  void set_deadlock(const Error& error) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<Error> deadlock() const UNISONO_EXCLUDES(mutex_);

 private:
  // The operation in progress, after it has waited for a moment.
  struct OperationWait {
    transport::Stall wait;
    std::uint64_t thread;  // The executing thread.
  };

  // The ranks of the job for which an operation waited at its last check.
  struct Late {
    std::uint64_t sequence = 0;
    std::vector<transport::LateRank> ranks;
    std::uint64_t thread = 0;
  };

  [[nodiscard]] int job_rank_of(int rank) const;
  [[nodiscard]] std::optional<OperationWait> find_operation() const UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<transport::Stall> named(
      std::optional<transport::Stall> receive) const;

  Job& job_;
  const GroupSetup& setup_;
  transport::JobRanks job_ranks_;
  const transport::Failure& failure_;
  engine::GroupEngine* engine_ = nullptr;
  // Relaxed, because no other data depends on it.
  std::atomic<std::uint64_t> n_calls_ = 0;
  SingleCaller callers_;

  mutable Mutex mutex_;
  Late late_ UNISONO_GUARDED_BY(mutex_);
  std::optional<Error> deadlock_ UNISONO_GUARDED_BY(mutex_);
};

/// The last phase of a group on this rank: waits until no other rank can find a mismatch with this
/// rank's last calls, because only a rank that is still present can receive the error.
///
/// Owned by GroupState. Used by the thread that drives the group, except for note_finished().
class GroupDeparture {
 public:
  /// The references must outlive the object.
  GroupDeparture(const collective::Topology& topology,
                 const peers::RankStatus& ranks,
                 const transport::Failure& failure,
                 peers::StatusClient& status,
                 engine::GroupEngine& engine);

  /// Waits until all ranks have reached this rank's last calls, the group has failed, or 3 s have
  /// passed since the first call. Returns whether this happened by the deadline.
  [[nodiscard]] bool is_settled_by(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Records that all ranks of a node have finished this number of operations. Any thread.
  void note_finished(int node, std::uint64_t n_operations) UNISONO_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::vector<int> find_doubtful() UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] bool is_any_gone(std::vector<int> ranks);

  const collective::Topology& topology_;
  const peers::RankStatus& ranks_;
  const transport::Failure& failure_;
  peers::StatusClient& status_;
  engine::GroupEngine& engine_;
  std::optional<Deadline> settling_until_;
  std::set<int> gone_;

  Mutex mutex_;
  std::map<int, std::uint64_t> n_finished_on_node_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
