#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_id.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"

namespace unisono::health {

/// Finds ranks that wait for each other in a circle, and ends their waits with an error that names
/// it, on all of them. A receive from any rank is in one if each rank that may still send is stuck
/// in one, too. A circle must be seen twice: what both looks saw was there at the same time.
/// Thread-safe.
class CycleSearch {
 public:
  /// The references outlive it.
  CycleSearch(const rendezvous::Roster& roster,
              ControlPlane& control,
              GroupRegistry& groups,
              Logger logger);

  /// As finish().
  ~CycleSearch();

  CycleSearch(const CycleSearch&) = delete;
  CycleSearch& operator=(const CycleSearch&) = delete;
  CycleSearch(CycleSearch&&) = delete;
  CycleSearch& operator=(CycleSearch&&) = delete;

  /// This rank has been in the wait for long: looks, on a thread that starts with the first call,
  /// whether the wait is in a circle.
  void look(const WaitId& wait) noexcept UNISONO_EXCLUDES(mutex_);

  /// Looks no more. Where ranks do not answer it takes a second; where a circle was found, until
  /// all its ranks know.
  void finish() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  void work_off() UNISONO_EXCLUDES(mutex_);
  void search(const WaitId& id) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] bool is_finished() UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<RankWait> ask(int rank, const RankWait& waiter);
  void end(std::span<const RankWait> waits, const Error& verdict);
  void tell_others(std::span<const RankWait> waits,
                   transport::FrameKind kind,
                   const Error& verdict);

  const rendezvous::Roster& roster_;
  ControlPlane& control_;
  GroupRegistry& groups_;
  Logger logger_;
  // By the wait that each begins with. Of the thread.
  std::map<WaitId, std::vector<RankWait>> seen_;

  Mutex mutex_;
  Condition changed_;
  std::deque<WaitId> waits_ UNISONO_GUARDED_BY(mutex_);
  bool is_finished_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
