#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/health/group_health.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// What is known of the other ranks of a group, for messages about them. Thread-safe.
class RankStatus {
 public:
  /// The references outlive it. Without `health` it knows nothing of what ranks do.
  RankStatus(const rendezvous::Roster& roster,
             std::string prefix,
             Logger logger,
             GroupHealth* health = nullptr);

  /// "[rank 0/4]", as our messages begin.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }

  /// What the group's ranks are called in the job, where that differs.
  [[nodiscard]] transport::JobRanks job_ranks() const { return job_ranks_; }

  [[nodiscard]] bool is_on_node(int rank) const;

  /// Whether it is a process of this node that is stopped.
  [[nodiscard]] bool is_stopped(int rank) const;

  /// "rank 1 (pid 123 on alpha)".
  [[nodiscard]] std::string describe(int rank) const;

  /// "rank 1 (pid 123 on alpha, stopped), which is in barrier #3, and rank 3 (...)": for ranks on
  /// this node with what /proc tells, and where they are in the group's operations. `answers` are
  /// what ranks said when they were asked what they do, those of this node in other groups.
  [[nodiscard]] std::string describe_late(std::span<const int> ranks,
                                          const std::map<int, std::string>& answers = {}) const;

  /// Logs why other ranks of the group failed, which this rank has heard of only as it leaves: as a
  /// warning if it is news, else for who debugs.
  void report_unheard(const Error& failure) const noexcept;

  /// Notes that a rank of another node has left in good order.
  void note_departure(int rank, const transport::Departure& departure = {})
      UNISONO_EXCLUDES(mutex_);

  /// "rank 1 (pid 123 on alpha) left the group, but this operation still needs it", with a call
  /// that it refused before that.
  [[nodiscard]] std::string describe_departed(int rank) const;

  /// The first of `ranks` from which nothing comes any more that operations need.
  [[nodiscard]] std::optional<int> find_departed(std::span<const int> ranks) const
      UNISONO_EXCLUDES(mutex_);

  /// Whether no message comes from the rank any more.
  [[nodiscard]] bool has_departed_from_messages(int rank) const UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] const Logger& logger() const { return logger_; }

 private:
  [[nodiscard]] bool has_left_here(int rank) const;

  const rendezvous::Roster& roster_;
  std::vector<int> job_ranks_;
  std::string prefix_;
  Logger logger_;
  GroupHealth* health_;
  mutable Mutex mutex_;
  std::set<int> departed_ UNISONO_GUARDED_BY(mutex_);  // From operations.
  std::set<int> departed_from_messages_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
