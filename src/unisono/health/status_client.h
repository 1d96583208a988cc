#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/health/group_contacts.h"
#include "unisono/net/hello.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

/// What the hello of an inquiry says it is for.
inline constexpr const char* kStatusPurpose = "inquiry";

/// Asks ranks where they are in a group's operations, and in those of their other groups: their
/// watchers answer, whatever the rank itself does. Of a rank of this node only the latter is asked:
/// the rest the control block tells. Thread-safe.
class StatusClient {
 public:
  /// `is_on_node(r)` says whether rank r of the group is of this node.
  /// `note_departure` hears, on any thread, of a rank of another node that has left, and of which
  /// nothing is on its way here; `note_reason` of one that has given up, and why;
  /// `note_rank_progress` where one of another node is.
  StatusClient(const GroupContacts& contacts,
               std::function<bool(int rank)> is_on_node,
               std::function<void(int rank, const transport::Departure& departure)> note_departure,
               std::function<void(int rank, const Error& reason)> note_reason,
               std::function<void(int rank, const transport::RankProgress& rank_progress)>
                   note_rank_progress,
               std::string prefix,
               Logger logger);

  /// As finish().
  ~StatusClient();

  StatusClient(const StatusClient&) = delete;
  StatusClient& operator=(const StatusClient&) = delete;
  StatusClient(StatusClient&&) = delete;
  StatusClient& operator=(StatusClient&&) = delete;

  /// Asks `rank`, on a thread that starts with the first call; the answer goes to the log. Ranks
  /// that are asked while others are take their turn.
  void ask(int rank) noexcept UNISONO_EXCLUDES(mutex_);

  /// Asks the first few of `ranks`, all at once, and waits for 0.1 s at most. What each does, in a
  /// phrase that follows its name; of one that does not answer, what it has said before, too. Of a
  /// rank of this node: a Standing's `elsewhere`.
  [[nodiscard]] std::map<int, std::string> hear(std::span<const int> ranks)
      UNISONO_EXCLUDES(mutex_);

  /// Asks no more. Takes a second at most, where a rank does not answer.
  void finish() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  void work_off() UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string inquire(int rank, std::chrono::milliseconds timeout)
      UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_answer(int rank, const transport::RankProgress& rank_progress)
      UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_silence_here(int rank) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe_silence(int rank, std::chrono::milliseconds timeout)
      UNISONO_EXCLUDES(mutex_);

  std::vector<transport::RankAddress> members_;
  std::vector<int> job_ranks_;
  std::function<bool(int rank)> is_on_node_;
  std::function<void(int rank, const transport::Departure& departure)> note_departure_;
  std::function<void(int rank, const Error& reason)> note_reason_;
  std::function<void(int rank, const transport::RankProgress& rank_progress)> note_standing_;
  std::string secret_;
  net::HelloInfo mine_;
  std::string prefix_;
  Logger logger_;

  Mutex mutex_;
  Condition changed_;
  std::vector<int> ranks_ UNISONO_GUARDED_BY(mutex_);
  std::map<int, std::string> last_answers_ UNISONO_GUARDED_BY(mutex_);
  bool is_finished_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::health
