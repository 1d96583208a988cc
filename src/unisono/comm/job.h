#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/group_setup.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/group_waits.h"
#include "unisono/comm/job_start.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native_engines.h"
#include "unisono/peers/control_plane.h"
#include "unisono/peers/deadlock_detector.h"
#include "unisono/peers/group_registry.h"
#include "unisono/peers/long_waits.h"
#include "unisono/peers/peer_monitor.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {

/// Describes the ranks of this rank's node that are separate processes but may use only the same
/// single processor: "ranks 0 and 1 may use core 3 only"; empty if there are no such ranks.
/// `cores_of` is the function of that name.
[[nodiscard]] std::string describe_shared_core(
    const transport::RankTable& roster, const std::function<std::vector<int>(pid_t)>& cores_of);

/// Logs describe_shared_core() on the first rank of a node, if the machine has other cores.
void warn_of_shared_core(const transport::RankTable& roster, const base::Logger& logger);

/// A rank's part in a job, shared by the rank's groups: roster, memory, engines, and the thread
/// that monitors the other ranks.
///
/// Owned by the queues of the groups. Begins with the rendezvous in the constructor, and leaves the
/// job when the last group ends. Not movable, because the parts refer to each other. Thread-safe,
/// except for the constructor.
class Job {
 public:
  /// Performs the rendezvous with the other ranks. Throws like create_process_group().
  explicit Job(const JobOptions& options);

  /// Makes the group of all ranks. Call once.
  [[nodiscard]] std::shared_ptr<GroupState> make_world();

  /// Makes a group of some ranks. `setup` must be equal on all members, and its number must have
  /// been expected.
  [[nodiscard]] std::shared_ptr<GroupState> make_group(GroupSetup setup);

  [[nodiscard]] const transport::RankTable& roster() const { return joined_.ranks; }

  [[nodiscard]] const rendezvous::StoreSession& session() const { return session_; }

  /// The engines that connect the ranks of each group, whatever the backend.
  [[nodiscard]] engine::NativeEngines& engines() { return engines_; }

  [[nodiscard]] peers::GroupRegistry& groups() { return groups_; }

  [[nodiscard]] GroupNumbers& numbers() { return numbers_; }

  [[nodiscard]] base::Logger logger() const;

  [[nodiscard]] const base::Config& config() const { return config_; }

  /// The backend of all groups.
  [[nodiscard]] const engine::Backend& backend() const { return joined_.backend; }

  /// Returns the engine of a group for the job's backend; `native` itself if the backend has no
  /// engine of its own.
  [[nodiscard]] std::shared_ptr<engine::Engine> make_engine(
      const transport::RankTable& roster, std::shared_ptr<engine::SupervisingEngine> native) const;

  /// Returns the prefix of the keys of a group's ranks in the store.
  [[nodiscard]] std::string store_prefix(std::uint32_t group) const;

  /// Returns the control connections to the job's other ranks.
  [[nodiscard]] peers::ControlPlane& control() { return watcher_->control(); }

  /// The thread that calls this rank's groups, if it is a single thread.
  [[nodiscard]] SingleCaller& callers() { return callers_; }

  [[nodiscard]] const std::shared_ptr<peers::BlockedThreads>& blocked_threads() const {
    return blocked_threads_;
  }

  /// The file in which the launcher reads this rank's waits; null without such a file.
  [[nodiscard]] peers::LongWaits* long_waits() const { return long_waits_.get(); }

  /// The search for deadlocks that include waits of this rank.
  [[nodiscard]] peers::DeadlockDetector& cycles() { return *cycles_; }

  /// Records that a deadlock ends a call of this rank.
  void note_circle() { is_in_circle_.store(true, std::memory_order_relaxed); }

  /// Returns whether a deadlock has ended a call of this rank.
  [[nodiscard]] bool is_in_circle() const { return is_in_circle_.load(std::memory_order_relaxed); }

  /// Returns the wait of `thread`, if no callback of this rank may make a call meanwhile.
  [[nodiscard]] std::optional<transport::Stall> find_wait_of(std::uint64_t thread);

  /// Returns whether no other group has passed a failure with the same cause before. A rank may
  /// fail in all of its groups for the same reason.
  [[nodiscard]] bool is_news(const Error& failure) UNISONO_EXCLUDES(mutex_);

  /// Returns whether a rank of this node has left the job cleanly.
  [[nodiscard]] bool has_left(int rank) const;

  /// The state of a group at its end.
  struct GroupEnd {
    std::optional<Error> failure = {};
    bool has_all = true;  ///< All ranks were in an operation of the group.
  };

  /// Ends the group's part in the job. The job ends with its last group. After a failure of a
  /// group, or if other ranks may still start, the store remains available for a short time.
  void end_group(std::uint32_t number, transport::ConnectedPeers met, GroupEnd end) noexcept
      UNISONO_EXCLUDES(mutex_);

 private:
  void leave(const GroupEnd& end) noexcept;

  // In order of initialization: each member requires the members above.
  std::chrono::milliseconds timeout_;
  base::Config config_;
  rendezvous::StoreSession session_;
  std::string endpoint_;
  // Open while the rank is in the job: the end of the socket shows the rank's end.
  Fd node_listener_;
  Fd node_post_;
  Fd data_listener_;
  engine::NativeEngines engines_;
  JoinedJob joined_;
  GroupNumbers numbers_;
  SingleCaller callers_;
  std::shared_ptr<peers::BlockedThreads> blocked_threads_ =
      std::make_shared<peers::BlockedThreads>();
  std::unique_ptr<peers::LongWaits> long_waits_;
  peers::GroupRegistry groups_;
  shm::NodeMemory node_memory_;
  std::vector<int> node_ranks_;  // Ranks of this node, in the order of node_memory_.
  std::unique_ptr<peers::PeerMonitor> watcher_;
  std::unique_ptr<peers::DeadlockDetector> cycles_;

  // Relaxed accesses suffice: no other data depends on it.
  std::atomic<bool> is_in_circle_ = false;
  mutable Mutex mutex_;
  int n_groups_ UNISONO_GUARDED_BY(mutex_) = 0;
  GroupEnd end_ UNISONO_GUARDED_BY(mutex_);  // The worst end of all groups.
  std::set<std::pair<ErrorCode, std::string>> known_failures_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
