#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/wait_record.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// Receives an engine's reports about waits, and answers queries about the group's other ranks.
/// Implemented above the engines; owned by the group's state, which outlives its engine.
///
/// Thread-safe. No function is called while an operation or message makes progress, so the fast
/// path is not affected.
class EngineEvents {
 public:
  EngineEvents() = default;
  virtual ~EngineEvents() = default;
  EngineEvents(const EngineEvents&) = delete;
  EngineEvents& operator=(const EngineEvents&) = delete;
  EngineEvents(EngineEvents&&) = delete;
  EngineEvents& operator=(EngineEvents&&) = delete;

  // Failures.

  /// Sets the group's failure if another rank is known to have failed. Called by a waiting rank.
  virtual void check_peers() noexcept = 0;

  /// Returns the error, extended by the causes that other ranks report. Takes at most half a
  /// second.
  [[nodiscard]] virtual Error explain(const Error& error) noexcept = 0;

  /// Sends `rank` the error for which this rank fails. The receiver may wait for other ranks, from
  /// which no error arrives. Takes at most half a second.
  virtual void warn(int rank, const Error& reason) const noexcept = 0;

  // State of other ranks.

  /// Returns whether a rank has left the group's operations, or its messages. All data that a rank
  /// of this node sent before is visible then.
  [[nodiscard]] virtual bool has_left_operations(int rank) const = 0;
  /// The counterpart of has_left_operations() for point-to-point messages.
  [[nodiscard]] virtual bool has_left_messages(int rank) const = 0;

  /// Returns "rank 1 (pid 123 on alpha) left the group, but this operation still needs it".
  [[nodiscard]] virtual std::string describe_departed(int rank) const = 0;

  /// Returns "rank 1 (pid 123 on alpha, stopped), which is in barrier #3, and rank 3 (...)".
  [[nodiscard]] virtual std::string describe_late(std::span<const int> ranks) const = 0;

  /// Returns the same text for ranks that have exceeded their time limit. Queries the first few
  /// ranks, for at most 0.1 s.
  [[nodiscard]] virtual std::string describe_overdue(std::span<const int> ranks) = 0;

  // Waits of this rank.

  /// Records the ranks for which an operation waits. Called by the thread that executes the
  /// operation.
  virtual void note_late(std::uint64_t sequence, std::span<const int> late_ranks) = 0;

  /// Logs that `operation` has waited for `late`, and queries the state of `ranks`, which is logged
  /// when it arrives.
  virtual void report_stall(const std::string& operation,
                            std::chrono::milliseconds waited,
                            const std::string& late,
                            std::span<const int> ranks) = 0;

  /// Starts a search for a deadlock that may include this wait. Does not block.
  virtual void search_deadlock(const transport::WaitId& wait) = 0;

  /// Publishes a long wait to the launcher, until hide_wait(). `wait.late` are ranks of the group,
  /// and `wait.seen` is not set.
  virtual void show_wait(const transport::WaitId& id, LongWait wait) const = 0;
  /// Withdraws a wait that show_wait() has published.
  virtual void hide_wait(const transport::WaitId& id) const noexcept = 0;

  /// Returns the time since which a thread has been blocked on an asynchronous operation;
  /// std::nullopt if no thread is blocked.
  [[nodiscard]] virtual std::optional<Deadline::Clock::time_point> blocked_since(
      const transport::WaitId& work) const = 0;

  // Published calls, by which ranks of different nodes detect a mismatch in which each rank waits
  // for the other.

  /// Publishes the last calls of this rank.
  virtual void publish_calls(std::span<const transport::CallRecord> calls) noexcept = 0;

  /// Returns the calls that `rank` has published; empty if `rank` has not waited.
  [[nodiscard]] virtual std::vector<transport::CallRecord> calls_of(int rank) noexcept = 0;
};

/// State of a group that its engine uses. The references outlive the engine.
struct GroupContext {
  std::uint32_t number;  ///< Equal on all ranks of the group; 0 is the group of all ranks.
  const transport::RankTable& ranks;
  const collective::Topology& topology;
  transport::JobRanks job_ranks;  ///< For messages.
  const std::string& prefix;      ///< Prefix of this rank's messages: "[rank 0/4]".
  const base::Logger& logger;
  transport::Failure& failure;  ///< The group's first error. Every wait checks it.
  EngineEvents& events;

  /// Returns "rank 1 (pid 123 on alpha)".
  [[nodiscard]] std::string describe(int rank) const {
    return transport::describe(ranks.member(rank));
  }

  /// Returns the first rank of `some` that has left the group's operations; std::nullopt if all
  /// remain.
  [[nodiscard]] std::optional<int> find_departed(std::span<const int> some) const {
    for (const int rank : some) {
      if (events.has_left_operations(rank)) {
        return rank;
      }
    }
    return std::nullopt;
  }
};

/// The native engine, which every group has, whatever its backend. Connects the group's ranks and
/// publishes the progress of each rank.
///
/// Made by NativeEngines::make(), and owned by the group. Engine's abort() and leave() end only the
/// operations. Messages, connections and shared memory end by separate calls, in the order of this
/// class. Functions are thread-safe unless a comment names a thread.
class GroupEngine : public SupervisingEngine {
 public:
  /// Wakes this rank's waits, which then check again.
  virtual void wake() const noexcept = 0;

  /// Takes over a connection that `rank` opened. The handshake is complete; `purpose` is taken from
  /// the hello.
  virtual void deliver(int rank, std::string_view purpose, Fd socket) = 0;

  /// Refuses a connection because the group has failed, and sends the reason.
  virtual void reject(int socket, const Error& reason) const noexcept = 0;

  /// Returns the traffic of the connections for operations, by rank.
  [[nodiscard]] virtual std::vector<RankTraffic> traffic() const = 0;

  /// Returns the progress of a rank of this node in the group's operations.
  [[nodiscard]] virtual transport::RankProgress progress_of(int rank) const = 0;

  /// Returns whether a rank of this node has announced that it leaves.
  [[nodiscard]] virtual bool is_leaving(int rank) const = 0;

  /// Returns the progress of this rank; std::nullopt after leave_memory().
  [[nodiscard]] virtual std::optional<transport::RankProgress> own_progress() const = 0;

  /// Records that this rank refused a call after operation `sequence`. Reports of other ranks show
  /// `text`.
  virtual void note_refused(std::uint64_t sequence, std::string_view text) = 0;

  // Messages.

  /// Sets the callback that reports the group's failure to the other ranks. Any thread may call
  /// `tell`, without a lock, after messages have set the failure.
  virtual void on_failed_messages(std::function<void()> tell) = 0;

  /// Reads packets that arrived while this rank waited for no message.
  virtual void listen_for_messages() noexcept = 0;

  /// Returns the receive with this id, or the receive in which `thread` blocks; std::nullopt if
  /// there is no such receive or a message has matched it. For a receive from any rank, also
  /// determines the ranks of other nodes that can no longer send.
  [[nodiscard]] virtual std::optional<transport::Stall> find_receive(
      const transport::WaitId& id) = 0;
  /// Like find_receive(), for the receive in which `thread` blocks.
  [[nodiscard]] virtual std::optional<transport::Stall> find_receive_of(std::uint64_t thread) = 0;

  /// Returns the number of messages that this rank has sent to `rank`, including those in flight.
  [[nodiscard]] virtual std::uint64_t n_sent(int rank) = 0;

  /// Refuses new messages and waits until the deadline for the messages in flight. Returns whether
  /// all have ended. Receives that no message has matched 1 s after the first call fail with
  /// kClosed, because all senders may have left.
  [[nodiscard]] virtual bool drain_messages(Deadline deadline) = 0;

  /// After drain_messages(): returns the ranks that have not confirmed all small messages of this
  /// rank. Such a rank may still find that a message does not fit its receive.
  [[nodiscard]] virtual std::vector<int> find_debtors() = 0;

  /// Requests the confirmations, and waits until find_debtors() is empty, the group fails or the
  /// deadline passes.
  virtual void await_credit(Deadline deadline) = 0;

  /// Waits for all messages, and ends the thread that makes progress for them.
  virtual void finish_messages() = 0;

  /// Sends the failure of this rank's group and its reason to the ranks of other nodes.
  virtual void abort_messages(const Error& reason) noexcept = 0;

  /// After finish_messages(): announces to the ranks of other nodes that this rank leaves cleanly,
  /// unless it has aborted.
  virtual void leave_messages() noexcept = 0;

  // End of the group, on the thread that drives its operations.

  /// Returns the number of the last operation if other ranks may detect a mismatch after this
  /// rank's part has ended, otherwise 0. Sets the group's failure if a peer has reported an error.
  [[nodiscard]] virtual std::uint64_t find_doubtful_operation() = 0;

  /// Announces to the ranks of this node that this rank leaves cleanly.
  virtual void announce_leave() = 0;

  /// Closes all connections, and returns the ranks that had a connection. deliver() must not be
  /// called any more.
  [[nodiscard]] virtual transport::ConnectedPeers close() = 0;

  /// The last call: this rank stops accessing the memory of peers and publishing progress.
  virtual void leave_memory() = 0;
};

}  // namespace unisono::engine
