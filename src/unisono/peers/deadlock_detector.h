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
#include "unisono/peers/control_plane.h"
#include "unisono/peers/group_registry.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"

namespace unisono::peers {

/// Finds cycles of ranks that wait for each other, and ends the waits on all of these ranks with an
/// error that describes the cycle. A receive from any rank is in a cycle if each rank that may
/// still send is blocked in the cycle. A cycle must be found by two searches: the waits of both
/// results existed at the same time.
///
/// Each rank of a job has a detector, which ends before the control plane. Searches run on a thread
/// of the detector. Thread-safe. A search that fails is logged and has no other effect.
class DeadlockDetector {
 public:
  /// The references must outlive the object.
  DeadlockDetector(const transport::RankTable& roster,
                   ControlPlane& control,
                   GroupRegistry& groups,
                   base::Logger logger);

  /// Calls finish().
  ~DeadlockDetector();

  DeadlockDetector(const DeadlockDetector&) = delete;
  DeadlockDetector& operator=(const DeadlockDetector&) = delete;
  DeadlockDetector(DeadlockDetector&&) = delete;
  DeadlockDetector& operator=(DeadlockDetector&&) = delete;

  /// Starts a search for a cycle with this wait, which has lasted long. The search runs on a thread
  /// that starts with the first call.
  void look(const transport::WaitId& wait) noexcept UNISONO_EXCLUDES(mutex_);

  /// Ends all searches. Takes a second if ranks do not reply; after a cycle was found, waits until
  /// its ranks have the verdict.
  void finish() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  void work_off() UNISONO_EXCLUDES(mutex_);
  void search(const transport::WaitId& id) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] bool is_finished() UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<transport::Stall> ask(int rank, const transport::Stall& waiter);
  void end(std::span<const transport::Stall> waits, const Error& verdict);
  void tell_others(std::span<const transport::Stall> waits,
                   transport::FrameKind kind,
                   const Error& verdict);

  const transport::RankTable& roster_;
  ControlPlane& control_;
  GroupRegistry& groups_;
  base::Logger logger_;
  // The last cycle for each wait that a search started with. Used only by the thread.
  std::map<transport::WaitId, std::vector<transport::Stall>> seen_;

  Mutex mutex_;
  Condition changed_;
  std::deque<transport::WaitId> waits_ UNISONO_GUARDED_BY(mutex_);
  bool is_finished_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::peers
