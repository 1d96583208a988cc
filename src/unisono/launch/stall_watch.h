#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/messages.h"

namespace unisono::launch {

/// A wait of one of the job's ranks.
struct RankWait {
  int rank = 0;
  Deadline::Clock::time_point since;
  std::string operation = {};  ///< Description such as "all_reduce #3 (f32[8], sum)".
  std::vector<int> late = {};  ///< Ranks that the wait is for; empty: any other rank may end it.

  friend bool operator==(const RankWait&, const RankWait&) = default;
};

/// A rank that other ranks have waited for too long.
struct LateRankWaits {
  int rank = 0;
  Deadline::Clock::time_point since;
  std::vector<RankWait> waits = {};  ///< Waits for this rank, the longest first.
};

/// Returns the rank that holds up the other ranks: a wait for this rank has lasted `limit`, and the
/// rank itself waits for no particular rank. If there are several, the rank with the longest wait
/// is returned.
///
/// Returns std::nullopt if there is no such rank. In a chain of waits only the last rank counts,
/// once a wait for that rank has lasted `limit`. A cycle of waits has no such rank; the ranks
/// detect that deadlock themselves.
[[nodiscard]] std::optional<LateRankWaits> find_late_rank(std::span<const RankWait> waits,
                                                          std::chrono::milliseconds limit,
                                                          Deadline::Clock::time_point now);

/// Returns the time at which find_late_rank() may return another rank for the same waits;
/// Deadline::never() if that needs a change of the waits.
[[nodiscard]] Deadline next_late_rank(std::span<const RankWait> waits,
                                      std::chrono::milliseconds limit,
                                      Deadline::Clock::time_point now);

/// Returns a line for each of the first operations, such as "ranks 0, 2-7 in all_reduce #3 (f32[8],
/// sum) for 30.2 s".
[[nodiscard]] std::string describe_waits(const LateRankWaits& late,
                                         Deadline::Clock::time_point now);

/// Returns a time in seconds with one decimal, such as "30.2 s".
[[nodiscard]] std::string describe_seconds(std::chrono::nanoseconds time);

}  // namespace unisono::launch

namespace unisono::launch::nodes {

/// Finds the rank of a generation that other ranks have waited for too long, from the long waits
/// that nodes report. The caller passes the time.
class LateRanks {
 public:
  using Time = Deadline::Clock::time_point;

  /// A rank counts as late after a wait of `timeout`; 0: no rank counts as late.
  explicit LateRanks(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// Forgets all waits, at the start of a generation.
  void start();

  /// Replaces the waits of a rank.
  void take(const Waits& message, Time now);

  /// Returns a late rank; std::nullopt if there is no late rank, or the last call of give_up() was
  /// for that rank.
  [[nodiscard]] std::optional<LateRankWaits> find(Time now);

  /// Records that the node of `rank` has received GiveUp.
  void give_up(int rank) { given_up_ = rank; }

  /// Returns the time at which find() may return another rank.
  [[nodiscard]] Time next_due() const { return next_due_; }

 private:
  std::chrono::milliseconds timeout_;
  std::map<int, std::vector<RankWait>> waits_;
  std::optional<int> given_up_;
  Time next_due_ = Time::max();
};

}  // namespace unisono::launch::nodes

namespace unisono::launch {

/// File in which a rank reports waits for other ranks. The file is an anonymous memfd and
/// disappears with this process.
class WaitFile {
 public:
  /// Throws Error(kSystem).
  WaitFile();

  /// Returns the value of the rank's kWaitFileVariable.
  [[nodiscard]] std::string path() const;

  /// Returns the present record. Returns std::nullopt if no rank has written yet, or a rank is
  /// writing at this moment.
  [[nodiscard]] std::optional<WaitRecord> read() const;

 private:
  Fd file_;
};

/// Returns the waits of a rank that count at `now`. A wait does not count if the rank has not
/// confirmed it for ten seconds, for example because the rank is stopped. No wait begins before
/// `counts_from`.
[[nodiscard]] std::vector<RankWait> present_waits(int rank,
                                                  std::span<const LongWait> waits,
                                                  Deadline::Clock::time_point counts_from,
                                                  Deadline::Clock::time_point now);

/// Reads once a second the waits that the ranks of this node report.
///
/// WorkerGroup owns the object; used on the loop's thread only.
class StallWatch {
 public:
  /// Throws Error(kSystem).
  StallWatch(int first_rank, std::size_t n_ranks);

  /// Returns the value of the rank's kWaitFileVariable.
  [[nodiscard]] std::string path(std::size_t worker) const { return ranks_[worker].file.path(); }

  [[nodiscard]] Deadline next_look() const { return next_look_; }

  /// Reads the wait files. If the last call was long ago, this process was stopped, perhaps with
  /// the ranks: all waits then begin now.
  void look(Deadline::Clock::time_point now);

  /// Returns the waits of all ranks, as of the last look().
  [[nodiscard]] std::span<const RankWait> waits() const { return waits_; }

  [[nodiscard]] std::span<const RankWait> waits_of(std::size_t worker) const {
    return ranks_[worker].waits;
  }

  /// Returns the ranks with waits that have changed since the last call.
  [[nodiscard]] std::vector<std::size_t> take_changed();

  /// Returns the process that waits as the rank, which may be a descendant of the rank's own
  /// process. Returns std::nullopt if no process has reported a wait.
  [[nodiscard]] std::optional<pid_t> pid(std::size_t worker) const { return ranks_[worker].pid; }

 private:
  struct Rank {
    WaitFile file = {};
    std::vector<LongWait> said = {};   // Last complete record.
    std::vector<RankWait> waits = {};  // The waits of `said` that count.
    std::optional<pid_t> pid = {};
    bool has_changed = false;
  };

  int first_rank_;
  std::vector<Rank> ranks_;
  std::vector<RankWait> waits_;
  std::optional<Deadline::Clock::time_point> last_look_;
  Deadline::Clock::time_point counts_from_ = Deadline::Clock::time_point::min();
  Deadline next_look_ = Deadline::after(std::chrono::seconds(0));
};

}  // namespace unisono::launch
