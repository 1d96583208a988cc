#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// An operation's wait that is long, as the launcher may be told of it.
struct ShownWait {
  Deadline::Clock::time_point since;  ///< Nothing has come since then.
  std::span<const int> late_ranks;
  std::string_view operation;
};

/// How a RankStatus learns what ranks do. Called by any thread.
struct RankSources {
  /// Where a rank of this node is in the group's operations.
  std::function<transport::RankProgress(int rank)> look;
  /// Asks a rank what it does. Does not wait: the answer goes to the log.
  std::function<void(int rank)> ask;
  /// Asks ranks what they do, for 0.1 s at most. Of those of other nodes that it has asked: a
  /// phrase that follows the rank's name; of those of this node: a Standing's `elsewhere`.
  std::function<std::map<int, std::string>(std::span<const int> ranks)> hear;
  /// Whether none of this rank's groups has been asked this of a failure with the same cause.
  std::function<bool(const Error& failure)> is_news;
  /// Notes for which ranks an operation waits, on the thread that executes it.
  std::function<void(std::uint64_t sequence, std::span<const int> late_ranks)> note_late;
  /// Has somebody look whether the operation waits in vain. Does not wait.
  std::function<void(std::uint64_t sequence)> look_for_cycle;
  /// Has the launcher see that the operation waits.
  std::function<void(std::uint64_t sequence, const ShownWait& wait)> show_wait;
  /// It waits no more. Throws nothing.
  std::function<void(std::uint64_t sequence)> hide_wait;
};

/// What is known of the other ranks of a group, for messages about them. Thread-safe.
class RankStatus {
 public:
  /// The roster outlives it. Without `sources` it knows nothing of what ranks do.
  RankStatus(const rendezvous::Roster& roster,
             std::string prefix,
             Logger logger,
             RankSources sources = {});

  /// "[rank 0/4]", as our messages begin.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }

  /// What the group's ranks are called in the job, where that differs.
  [[nodiscard]] transport::JobRanks job_ranks() const { return job_ranks_; }

  /// "rank 1 (pid 123 on alpha)".
  [[nodiscard]] std::string describe(int rank) const;

  /// "rank 1 (pid 123 on alpha, stopped), which is in barrier #3, and rank 3 (...)": for ranks on
  /// this node with what /proc tells, and where they are in the group's operations.
  [[nodiscard]] std::string describe_late(std::span<const int> ranks) const;

  /// The same of ranks that are waited for no more: they are asked what they do, those of this node
  /// in other groups.
  [[nodiscard]] std::string describe_overdue(std::span<const int> ranks) const;

  /// Logs that `operation` waits for `late`, in words, and asks `ranks` what they do.
  void report_stall(const std::string& operation,
                    std::chrono::milliseconds waited,
                    const std::string& late,
                    std::span<const int> ranks) const;

  /// Notes for which ranks an operation waits, which this thread executes.
  void note_late(std::uint64_t sequence, std::span<const int> late_ranks) const;

  /// Has somebody look whether this operation and ranks it waits for wait for each other.
  void look_for_cycle(std::uint64_t sequence) const;

  /// Has the launcher see that this operation waits long, until hide_wait().
  void show_wait(std::uint64_t sequence, const ShownWait& wait) const;
  void hide_wait(std::uint64_t sequence) const noexcept;

  /// Logs why other ranks of the group failed, which this rank has heard of only as it leaves: as a
  /// warning if it is news, else for who debugs.
  void report_unheard(const Error& failure) const noexcept;

  /// Notes that a rank has left in good order.
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
  [[nodiscard]] bool is_on_node(int rank) const;
  // Of a rank of this node.
  [[nodiscard]] bool is_stopped(int rank) const;
  [[nodiscard]] std::string describe_each(std::span<const int> ranks,
                                          const std::map<int, std::string>& answers) const;

  const rendezvous::Roster& roster_;
  std::vector<int> job_ranks_;
  std::string prefix_;
  Logger logger_;
  RankSources sources_;
  mutable Mutex mutex_;
  std::set<int> departed_ UNISONO_GUARDED_BY(mutex_);  // From operations.
  std::set<int> departed_from_messages_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::engine
