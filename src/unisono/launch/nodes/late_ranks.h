#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/late_rank.h"
#include "unisono/launch/nodes/messages.h"

namespace unisono::launch::nodes {

/// Which rank of a generation the others have waited for too long, by what its nodes tell of long
/// waits. No clock of its own.
class LateRanks {
 public:
  using Time = Deadline::Clock::time_point;

  /// A rank counts as late that others have waited `timeout` for; 0: none does.
  explicit LateRanks(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// A new generation: nobody waits.
  void start();

  /// Takes the waits that a rank is in.
  void take(const Waits& message, Time now);

  /// One that is late, unless give_up() had it last.
  [[nodiscard]] std::optional<LateRank> find(Time now);

  /// It has been told that `rank` is given up.
  void give_up(int rank) { given_up_ = rank; }

  /// When find() may find another one.
  [[nodiscard]] Time next_due() const { return next_due_; }

 private:
  std::chrono::milliseconds timeout_;
  std::map<int, std::vector<RankWait>> waits_;
  std::optional<int> given_up_;
  Time next_due_ = Time::max();
};

}  // namespace unisono::launch::nodes
