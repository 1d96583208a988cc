#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/roster.h"

namespace unisono::engine {

/// What is known of the other ranks of a group, for messages about them. Thread-safe.
class RankStatus {
 public:
  /// The roster outlives it.
  RankStatus(const rendezvous::Roster& roster, std::string prefix, Logger logger);

  /// "[rank 0/4]", as our messages begin.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }

  /// "rank 1 (pid 123 on alpha)".
  [[nodiscard]] std::string describe(int rank) const;

  /// "rank 1 (pid 123 on alpha, stopped) and rank 3 (...)": for ranks on this node with what /proc
  /// tells.
  [[nodiscard]] std::string describe_late(std::span<const int> ranks) const;

  /// Notes that a rank has left in good order.
  void note_departure(int rank) UNISONO_EXCLUDES(mutex_);

  /// The first of `ranks` that has left.
  [[nodiscard]] std::optional<int> find_departed(std::span<const int> ranks) const
      UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] const Logger& logger() const { return logger_; }

 private:
  const rendezvous::Roster& roster_;
  std::string prefix_;
  Logger logger_;
  mutable Mutex mutex_;
  std::set<int> departed_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::engine
