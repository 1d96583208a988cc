#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/peers/control_plane.h"
#include "unisono/peers/group_registry.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_table.h"

namespace unisono::peers {

/// State of this node's ranks in a group, as published in shared memory.
class NodeProgress {
 public:
  NodeProgress() = default;
  virtual ~NodeProgress() = default;
  NodeProgress(const NodeProgress&) = delete;
  NodeProgress& operator=(const NodeProgress&) = delete;
  NodeProgress(NodeProgress&&) = delete;
  NodeProgress& operator=(NodeProgress&&) = delete;

  /// Returns the progress of a rank in the group's operations. Any thread.
  [[nodiscard]] virtual transport::RankProgress progress_of(int rank) const = 0;

  /// Returns whether a rank has left the group. All data that it sent before is then visible. Any
  /// thread.
  [[nodiscard]] virtual bool has_left(int rank) const = 0;
};

/// State of the other ranks of a group, for messages about them. Owned by the group's state.
/// Thread-safe.
class RankStatus {
 public:
  /// The references must outlive the object. Without `node` the progress of ranks is unknown.
  RankStatus(const transport::RankTable& roster,
             std::string prefix,
             base::Logger logger,
             const NodeProgress* node = nullptr);

  /// Returns "[rank 0/4]", the prefix of this rank's messages.
  [[nodiscard]] const std::string& prefix() const { return prefix_; }

  /// Returns the job's numbers of the group's ranks, if different.
  [[nodiscard]] transport::JobRanks job_ranks() const { return job_ranks_; }

  /// Returns whether the rank is on this rank's node.
  [[nodiscard]] bool is_on_node(int rank) const;

  /// Returns whether the rank is a stopped process of this node.
  [[nodiscard]] bool is_stopped(int rank) const;

  /// Returns "rank 1 (pid 123 on alpha)".
  [[nodiscard]] std::string describe(int rank) const;

  /// Returns "rank 1 (pid 123 on alpha, stopped), which is in barrier #3, and rank 3 (...)": for
  /// ranks of this node with the process state of /proc and the progress in the group's operations.
  /// `answers` are the replies of ranks about their activity; for ranks of this node, about their
  /// activity in other groups.
  [[nodiscard]] std::string describe_late(std::span<const int> ranks,
                                          const std::map<int, std::string>& answers = {}) const;

  /// Records that a rank of another node has left cleanly.
  void note_departure(int rank, const transport::Departure& departure = {})
      UNISONO_EXCLUDES(mutex_);

  /// Returns "rank 1 (pid 123 on alpha) left the group, but this operation still needs it", with a
  /// call that the rank refused before, if any.
  [[nodiscard]] std::string describe_departed(int rank) const;

  /// Returns whether no operation can receive data from the rank any more.
  [[nodiscard]] bool has_departed(int rank) const UNISONO_EXCLUDES(mutex_);

  /// Returns whether no message can arrive from the rank any more.
  [[nodiscard]] bool has_departed_from_messages(int rank) const UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] const base::Logger& logger() const { return logger_; }

 private:
  [[nodiscard]] bool has_left_here(int rank) const;

  const transport::RankTable& roster_;
  std::vector<int> job_ranks_;
  std::string prefix_;
  base::Logger logger_;
  const NodeProgress* node_;
  mutable Mutex mutex_;
  std::set<int> departed_ UNISONO_GUARDED_BY(mutex_);  // Ranks that have left the operations.
  std::set<int> departed_from_messages_ UNISONO_GUARDED_BY(mutex_);
};

/// Constructor arguments and callbacks of a StatusClient. The references must outlive the client.
struct StatusClientParts {
  GroupContacts contacts;
  GroupRegistry& groups;
  const RankStatus& ranks;
  /// A rank of another node has left the given parts of the group. No data of these parts is in
  /// flight.
  std::function<void(int rank, const transport::Departure& departure)> note_departure;
  /// A rank has failed.
  std::function<void(int rank, const Error& reason)> note_reason;
  /// Progress of a rank of another node.
  std::function<void(int rank, const transport::RankProgress& rank_progress)> note_rank_progress;
};

/// Asks ranks for the progress in the operations of this group and of other groups. The monitor of
/// a rank replies while the rank computes or waits. For a rank of this node only the reply about
/// other groups is used, because the control block contains the progress in this group. Owned by
/// the group's state. Thread-safe.
class StatusClient {
 public:
  explicit StatusClient(StatusClientParts parts) : parts_(std::move(parts)) {}

  /// Like RankStatus::describe_late(), for ranks whose time limit has passed. Asks the first few
  /// ranks, for at most 0.1 s.
  [[nodiscard]] std::string describe_overdue(std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Logs that `operation` waits for `late`, and asks `ranks` for their state. Does not wait for
  /// the replies, which are logged when they arrive.
  void report_stall(const std::string& operation,
                    std::chrono::milliseconds waited,
                    const std::string& late,
                    std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Asks ranks for their progress, for at most 0.1 s, and returns the ranks that have not left.
  /// The callbacks receive the replies. A rank reads all arrived packets before the reply.
  [[nodiscard]] std::vector<int> find_present(std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Sends a rank the error for which this rank fails. For a rank that waits for other ranks, and
  /// so would not detect the failure. Takes at most half a second.
  void warn(int rank, const Error& reason) const noexcept {
    notify_rank(parts_.contacts, rank, reason);
  }

  /// Returns whether a thread waits for replies, which the monitor delivers.
  [[nodiscard]] bool is_hearing() const { return n_hearing_.load(std::memory_order_relaxed) > 0; }

  /// Ends logging.
  void finish() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool is_self(int rank) const;
  [[nodiscard]] Question question_to(int rank) const;

  // Asks the rank, unless a question is in flight. The reply is logged while the group exists.
  void ask(int rank) noexcept UNISONO_EXCLUDES(mutex_);

  // Asks all ranks at once. Returns the replies in the order of the ranks, or an empty list after
  // an error.
  [[nodiscard]] std::vector<Answer> ask_all(std::span<const int> ranks);

  // Asks the first few of `ranks`. Returns for each rank a clause about the rank's activity, to
  // follow the name; for a rank that does not reply, the clause also contains the last reply. For a
  // rank of this node, returns the field `elsewhere` of RankProgress.
  [[nodiscard]] std::map<int, std::string> hear(std::span<const int> ranks)
      UNISONO_EXCLUDES(mutex_);
  void hear_answer(int rank, const Answer& answer) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe(int rank,
                                     const Answer& answer,
                                     std::chrono::milliseconds timeout) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_frame(int rank,
                                           const transport::Frame& frame,
                                           std::span<const std::byte> payload)
      UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_progress(int rank,
                                              const transport::RankProgress& rank_progress)
      UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_silence(int rank, std::chrono::milliseconds timeout)
      UNISONO_EXCLUDES(mutex_);

  StatusClientParts parts_;

  std::atomic<int> n_hearing_ = 0;  // Relaxed accesses suffice: no other data depends on it.

  Mutex mutex_;
  std::set<int> asked_ UNISONO_GUARDED_BY(mutex_);
  std::map<int, std::string> last_answers_ UNISONO_GUARDED_BY(mutex_);
  bool is_finished_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::peers
