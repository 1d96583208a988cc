#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/job_start.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/only_caller.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native_engines.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/cycle_search.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/long_waits.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/watcher.h"
#include "unisono/health/work_waits.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {

/// A rank's membership of a job, which its groups share: the roster, the memory, the thread that
/// watches the other ranks. It begins with the rendezvous, and ends with the last group. Not
/// copyable, does not move: its parts know each other. Thread-safe but for the constructor.
class Job {
 public:
  /// Meets the other ranks. Throws as create_process_group() does.
  explicit Job(const JobOptions& options);

  /// The group of all ranks; once.
  [[nodiscard]] std::shared_ptr<Membership> make_world();

  /// A group of some ranks. `setup` is alike on all of them, and the number was expected.
  [[nodiscard]] std::shared_ptr<Membership> make_group(GroupSetup setup);

  [[nodiscard]] const rendezvous::Roster& roster() const { return roster_; }

  [[nodiscard]] const rendezvous::StoreSession& session() const { return session_; }

  /// By which its ranks reach each other, whatever the backend.
  [[nodiscard]] engine::NativeEngines& engines() { return engines_; }

  [[nodiscard]] health::GroupRegistry& groups() { return groups_; }

  [[nodiscard]] GroupNumbers& numbers() { return numbers_; }

  [[nodiscard]] Logger logger() const;

  [[nodiscard]] const Config& config() const { return config_; }

  /// What the engines of its groups are.
  [[nodiscard]] const engine::Backend& backend() const { return backend_; }

  /// The engine of a group, of the job's backend; `native` itself where that is all it needs.
  [[nodiscard]] std::shared_ptr<engine::Engine> make_engine(
      const rendezvous::Roster& roster, std::shared_ptr<engine::SupervisingEngine> native) const;

  /// What the keys of a group's ranks in the store begin with.
  [[nodiscard]] std::string store_prefix(std::uint32_t group) const;

  /// By which this rank speaks to the job's others, beside operations.
  [[nodiscard]] health::ControlPlane& control() { return watcher_->control(); }

  /// Who makes the calls of this rank's groups.
  [[nodiscard]] OnlyCaller& callers() { return callers_; }

  [[nodiscard]] const std::shared_ptr<health::WorkWaits>& work_waits() const { return work_waits_; }

  /// Where the launcher sees this rank's waits; null if it does not look.
  [[nodiscard]] health::LongWaits* long_waits() const { return long_waits_.get(); }

  /// Looks whether waits of this rank are in a circle.
  [[nodiscard]] health::CycleSearch& cycles() { return *cycles_; }

  /// A call of this rank ends as it is in a circle of waits.
  void note_circle() { is_in_circle_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] bool is_in_circle() const { return is_in_circle_.load(std::memory_order_relaxed); }

  /// The wait that `thread` is in, while nothing else of this rank may make a call.
  [[nodiscard]] std::optional<health::RankWait> find_wait_of(std::uint64_t thread);

  /// Whether no group has asked this before of a failure with the same cause: a rank that gave up,
  /// for reasons of the same kind, may have done so in all its groups.
  [[nodiscard]] bool is_news(const Error& failure) UNISONO_EXCLUDES(mutex_);

  /// Whether a rank of this node has left the job in good order.
  [[nodiscard]] bool has_left(int rank) const;

  /// How a group ended.
  struct GroupEnd {
    std::optional<Error> failure = {};
    bool has_all = true;  ///< Whether all ranks were in an operation of it.
  };

  /// The group's part of the job is over. With the last one the job ends. Where a group failed, or
  /// others may still start, they may look into the store.
  void end_group(std::uint32_t number, health::MetRanks met, GroupEnd end) noexcept
      UNISONO_EXCLUDES(mutex_);

 private:
  void leave(const GroupEnd& end) noexcept;

  // In the order in which ranks come to know each other: each member is made from those above it.
  std::chrono::milliseconds timeout_;
  Config config_;
  rendezvous::StoreSession session_;
  std::string endpoint_;
  Fd node_listener_;  // Open as long as the rank is in the job: others see its end by it.
  Fd node_post_;
  Fd data_listener_;
  engine::NativeEngines engines_;
  rendezvous::Roster roster_;
  engine::Backend backend_;
  GroupNumbers numbers_;
  OnlyCaller callers_;
  std::shared_ptr<health::WorkWaits> work_waits_ = std::make_shared<health::WorkWaits>();
  std::unique_ptr<health::LongWaits> long_waits_;
  health::GroupRegistry groups_;
  shm::NodeMemory node_memory_;
  std::vector<int> node_ranks_;  // Of this node, in order, as in its memory.
  std::unique_ptr<health::Watcher> watcher_;
  std::unique_ptr<health::CycleSearch> cycles_;

  std::atomic<bool> is_in_circle_ = false;  // Relaxed: it orders nothing else.
  mutable Mutex mutex_;
  int n_groups_ UNISONO_GUARDED_BY(mutex_) = 0;
  GroupEnd end_ UNISONO_GUARDED_BY(mutex_);  // The worst of the groups' ends.
  std::set<std::pair<ErrorCode, std::string>> known_failures_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
