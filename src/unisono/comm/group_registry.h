#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/links.h"

namespace unisono::comm {

/// The groups that this rank is in, by number: who hears what the watcher sees. What comes for a
/// group that this rank is about to make is kept for it. Thread-safe.
class GroupRegistry {
 public:
  /// A number that no group of this rank has had.
  [[nodiscard]] std::uint32_t next_number() const UNISONO_EXCLUDES(mutex_);

  /// From here on `count` groups from `first` on are about to be made.
  void expect(std::uint32_t first, std::uint32_t count) UNISONO_EXCLUDES(mutex_);

  /// The group of this number is about to be made, which is not one of those in a row.
  void expect(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// An expected group is made, or will not be made here.
  void add(std::uint32_t number, const std::shared_ptr<Links>& links) UNISONO_EXCLUDES(mutex_);
  void remove(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// This rank has left the group, in which it had connections with these ranks of the job.
  void end(std::uint32_t number, std::set<int> met) UNISONO_EXCLUDES(mutex_);

  /// Whether this rank has left the group without ever a connection with `job_rank` in it: nothing
  /// of it is on its way there. False of what it left long ago.
  [[nodiscard]] bool has_left_unmet(std::uint32_t number, int job_rank) const
      UNISONO_EXCLUDES(mutex_);

  using Event = std::function<void(Links&)>;

  /// Calls `event` for the group, now or when it is made; not at all if it has ended.
  void notify(std::uint32_t number, Event event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every group that there is.
  void notify_present(const Event& event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every group that there is, or that is expected.
  void notify_all(const Event& event) UNISONO_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::vector<std::shared_ptr<Links>> present() const UNISONO_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::uint32_t next_number_ UNISONO_GUARDED_BY(mutex_) = 1;
  std::map<std::uint32_t, std::shared_ptr<Links>> groups_ UNISONO_GUARDED_BY(mutex_);
  // Events for groups to come. The world is expected from the start.
  std::map<std::uint32_t, std::vector<Event>> expected_ UNISONO_GUARDED_BY(mutex_){{0, {}}};
  // The latest, with the ranks that this one had connections with.
  std::map<std::uint32_t, std::set<int>> ended_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
