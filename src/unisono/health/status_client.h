#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/rank_status.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

namespace unisono::health {

/// What a StatusClient is made of, and its callbacks. The references outlive it.
struct StatusClientParts {
  GroupContacts contacts;
  GroupRegistry& groups;
  const RankStatus& ranks;
  /// A rank of another node has left, and of this nothing is on its way here.
  std::function<void(int rank, const transport::Departure& departure)> note_departure;
  /// A rank has given up.
  std::function<void(int rank, const Error& reason)> note_reason;
  /// Where a rank of another node is.
  std::function<void(int rank, const transport::RankProgress& rank_progress)> note_rank_progress;
};

/// Asks ranks where they are in a group's operations, and in those of their other groups: their
/// watchers answer, whatever the rank itself does. Of a rank of this node only the other groups
/// count, as the control block has the rest. Thread-safe.
class StatusClient {
 public:
  explicit StatusClient(StatusClientParts parts) : parts_(std::move(parts)) {}

  /// As RankStatus::describe_late(), of ranks that are waited for no more: the first few are asked,
  /// for 0.1 s at most.
  [[nodiscard]] std::string describe_overdue(std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Logs that `operation` waits for `late`, in words, and asks `ranks` what they do; does not wait
  /// for what they say, which goes to the log, too.
  void report_stall(const std::string& operation,
                    std::chrono::milliseconds waited,
                    const std::string& late,
                    std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Asks ranks where they are, for 0.1 s at most, and returns the ranks that have not left. The
  /// answers go to the callbacks. A rank reads the packets that have come before it answers.
  [[nodiscard]] std::vector<int> find_present(std::span<const int> ranks) UNISONO_EXCLUDES(mutex_);

  /// Tells a rank why this one gives up, where it may see nothing of it: it waits for others. Takes
  /// half a second at most.
  void warn(int rank, const Error& reason) const noexcept {
    tell_rank(parts_.contacts, rank, reason);
  }

  /// Whether a thread waits for answers, and needs the watcher.
  [[nodiscard]] bool is_hearing() const { return n_hearing_.load(std::memory_order_relaxed) > 0; }

  /// Logs no more.
  void finish() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool is_self(int rank) const;
  [[nodiscard]] Question question_to(int rank) const;

  // Unless it is under way. The answer goes to the log, as long as the group is there.
  void ask(int rank) noexcept UNISONO_EXCLUDES(mutex_);

  // Asks all ranks at once. Returns the answers in the order of the ranks, or none after an error.
  [[nodiscard]] std::vector<Answer> ask_all(std::span<const int> ranks);

  // Asks the first few of `ranks`. What each does, in a phrase that follows its name;
  // of one that does not answer, what it has said before, too. Of a rank of this node: a
  // RankProgress's `elsewhere`.
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

  std::atomic<int> n_hearing_ = 0;  // Relaxed: it orders nothing else.

  Mutex mutex_;
  std::set<int> asked_ UNISONO_GUARDED_BY(mutex_);
  std::map<int, std::string> last_answers_ UNISONO_GUARDED_BY(mutex_);
  bool is_finished_ UNISONO_GUARDED_BY(mutex_) = false;
};

}  // namespace unisono::health
