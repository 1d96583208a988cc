#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/health/monitored_group.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// The ranks of the job with which a rank has had connections in a group.
struct MetRanks {
  std::set<int> by_operations = {};
  std::set<int> by_messages = {};
};

/// This rank's groups by number; dispatches the watcher's events to them. Events for a group that
/// this rank is about to make are kept for it. Thread-safe.
class GroupRegistry {
 public:
  /// The group of this number is about to be made. Whoever tells of it may do so from here on.
  void expect(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// An expected group is made.
  void add(std::uint32_t number, const std::shared_ptr<MonitoredGroup>& group)
      UNISONO_EXCLUDES(mutex_);

  /// A group is expected no longer; nothing happens if it was made.
  void forget(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// This rank has left the group, in which it had these connections; `failure` if it had failed.
  void end(std::uint32_t number, MetRanks met, std::optional<Error> failure = {})
      UNISONO_EXCLUDES(mutex_);

  /// Of which of the group's operations and messages nothing can be on its way to `job_rank`: this
  /// rank has left the group, and had no connection for them with that rank. Of neither for a group
  /// that it is in, or left long ago.
  [[nodiscard]] transport::Departure find_departure(std::uint32_t number, int job_rank) const
      UNISONO_EXCLUDES(mutex_);

  /// Why a group had failed that this rank has left, not long ago.
  [[nodiscard]] std::optional<Error> find_failure(std::uint32_t number) const
      UNISONO_EXCLUDES(mutex_);

  /// The group of this number; null where this rank is in none.
  [[nodiscard]] std::shared_ptr<MonitoredGroup> find(std::uint32_t number) const
      UNISONO_EXCLUDES(mutex_);

  using Event = std::function<void(MonitoredGroup&)>;

  /// Calls `event` for the group, now or when it is made; not at all if it has ended, or is not
  /// expected here.
  void notify(std::uint32_t number, Event event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every group that there is.
  void notify_present(const Event& event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every group that there is, or that is expected; twice for one that is made
  /// meanwhile.
  void notify_all(const Event& event) UNISONO_EXCLUDES(mutex_);

  /// Ends every group that there is, or ever will be, with the error. Takes no memory.
  void give_up(const Error& error) noexcept UNISONO_EXCLUDES(mutex_);

 private:
  // Without the lock while it visits a group.
  template <class Visit>
  void for_each(Visit visit) UNISONO_EXCLUDES(mutex_);

  // A group that this rank has left, with the ranks that it had connections with.
  struct Ended {
    std::uint32_t number;
    MetRanks met;
    std::optional<Error> failure;
  };

  [[nodiscard]] const Ended* find_ended(std::uint32_t number) const UNISONO_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<MonitoredGroup>> groups_ UNISONO_GUARDED_BY(mutex_);
  // Events for groups to come. The world is expected from the start.
  std::map<std::uint32_t, std::vector<Event>> expected_ UNISONO_GUARDED_BY(mutex_){{0, {}}};
  // The latest, in the order of their ends.
  std::deque<Ended> ended_ UNISONO_GUARDED_BY(mutex_);
  // Why no group can be used any more.
  std::optional<Error> end_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
